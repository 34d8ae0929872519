"""One rank: runs the example of every public docstring of railhop.torch.

Both ranks run all of them, in one order, so that collectives meet. Prints a JSON line: name -> how
many examples it has, and what was wrong with them.
"""

from __future__ import annotations

import doctest
import json
import os
import pathlib
import sys
import tempfile

import railhop.torch
import torch
import torch.distributed as dist

from tools.dev import torch_reference


def main() -> int:
    torch.set_num_threads(1)
    dist.init_process_group("railhop")
    names = {"dist": dist, "pathlib": pathlib, "railhop": railhop, "torch": torch}
    parser = doctest.DocTestParser()
    results: dict[str, dict[str, object]] = {}
    for name, value in torch_reference.documented().items():
        examples = parser.get_doctest(value.__doc__ or "", dict(names), name, None, None)
        said: list[str] = []
        # What an example writes is its own: not the other rank's, not the next one's.
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            doctest.DocTestRunner(verbose=False).run(examples, out=said.append)
            os.chdir("/")
        results[name] = {"examples": len(examples.examples), "problem": "".join(said)}
    print(json.dumps({"results": results}), flush=True)
    dist.barrier()
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
