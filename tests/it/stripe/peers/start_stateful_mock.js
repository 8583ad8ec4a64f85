// Starts stripe-stateful-mock on a free port of 127.0.0.1 and says which one; its own command listens on every
// interface, at a port that has to be chosen before.
const { createExpressApp } = require("stripe-stateful-mock");

const server = createExpressApp().listen(0, "127.0.0.1", () => {
    console.log("listening on", server.address().port);
});
