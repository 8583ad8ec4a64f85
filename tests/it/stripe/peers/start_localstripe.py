"""Starts localstripe on a free port of 127.0.0.1 and says which one.

Its own command listens on every interface, at a port that has to be chosen before, and writes all it knows into one
file in /tmp after each change, which a second instance (or one of another user) trips over. It also does not take the
parameter `created` of GET /v1/payment_intents, and lists the oldest first; Stripe's reference has the filter and the
opposite order ("List all PaymentIntents"). The rest is localstripe as it is.
"""

import operator
import socket

from aiohttp import web

from localstripe import resources, server
from localstripe.errors import UserError

COMPARISONS = {"gt": operator.gt, "gte": operator.ge, "lt": operator.lt, "lte": operator.le}


def payment_intents(cls, url, created=None, **rest):
    found = super(resources.PaymentIntent, cls)._api_list_all(url, **rest)
    bounds = created or {}
    if not isinstance(bounds, dict) or not set(bounds) <= set(COMPARISONS):
        raise UserError(400, "Invalid created")
    found._list = [
        intent
        for intent in sorted(found._list, key=lambda intent: int(intent.created), reverse=True)
        if all(COMPARISONS[name](int(intent.created), int(bound)) for name, bound in bounds.items())
    ]
    return found


resources.PaymentIntent._api_list_all = classmethod(payment_intents)
resources.store.dump_to_disk = lambda: None

listener = socket.create_server(("127.0.0.1", 0))
print("listening on", listener.getsockname()[1], flush=True)
web.run_app(server.app, sock=listener, access_log=None, print=None, shutdown_timeout=1)
