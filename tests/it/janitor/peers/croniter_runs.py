"""The next runs of crontab lines as croniter has them.

Reads a JSON array of {"line", "zone", "after", "count"} from stdin (after: seconds since 1970) and writes an array with
the runs of each, in seconds since 1970. A line of six fields begins with the second.
"""

import json
import sys
from datetime import datetime, timezone
from zoneinfo import ZoneInfo

from croniter import croniter


def runs(case):
    start = datetime.fromtimestamp(case["after"], timezone.utc).astimezone(ZoneInfo(case["zone"]))
    times = croniter(case["line"], start, second_at_beginning=True)
    return [int(times.get_next(datetime).timestamp()) for _ in range(case["count"])]


json.dump([runs(case) for case in json.load(sys.stdin)], sys.stdout)
