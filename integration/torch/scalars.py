"""Prints the scalars that TensorBoard finds in a folder: name -> [[step, value], ...], as JSON.

Run where TensorBoard is: it reads its own files.
"""

from __future__ import annotations

import json
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def main() -> int:
    # 0: keep all, not a sample.
    events = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0})
    events.Reload()
    found = {
        name: [[event.step, event.value] for event in events.Scalars(name)]
        for name in events.Tags()["scalars"]
    }
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
