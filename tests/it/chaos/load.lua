-- What `wrk` sends: payments under one key, or under many of which each comes twice. It counts what comes back.

local number = 0

function setup(thread)
  thread:set("id", number)
  number = number + 1
  threads = threads or {}
  table.insert(threads, thread)
end

function init(args)
  many = args[1] == "many"
  sent, paid, busy, other, differing = 0, 0, 0, 0, 0
  first = ""
end

function request()
  local key = "one"
  if many then
    key = "many-" .. id .. "-" .. math.floor(sent / 2)
  end
  sent = sent + 1
  local headers = {
    ["content-type"] = "application/json",
    ["x-client"] = "shop-1",
    ["idempotency-key"] = key,
  }
  return wrk.format("POST", "/payments", headers, '{"amount":100,"currency":"EUR"}')
end

function response(status, headers, body)
  if status == 201 then
    paid = paid + 1
    if first == "" then
      first = body
    elseif not many and body ~= first then
      differing = differing + 1
    end
  elseif status == 409 then
    busy = busy + 1
  else
    other = other + 1
  end
end

function done(summary, latency, requests)
  local sum = { paid = 0, busy = 0, other = 0, differing = 0 }
  local firsts = {}
  for _, thread in ipairs(threads) do
    for name in pairs(sum) do
      sum[name] = sum[name] + thread:get(name)
    end
    firsts[thread:get("first")] = true
  end
  firsts[""] = nil
  local bodies = 0
  for _ in pairs(firsts) do
    bodies = bodies + 1
  end
  local errors = summary.errors
  io.write(string.format(
    'counted {"paid":%d,"busy":%d,"other":%d,"differing":%d,"first_bodies":%d,"broken":%d,"per_second":%d,"p50_us":%d,"p99_us":%d}\n',
    sum.paid, sum.busy, sum.other, sum.differing, bodies,
    errors.connect + errors.read + errors.write + errors.timeout,
    math.floor(summary.requests / summary.duration * 1000000),
    latency:percentile(50), latency:percentile(99)))
end
