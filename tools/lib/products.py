"""What users get: the table that tools/build works through.

A product is a file or folder below dist/. To add one, add a row: its key in the JSON object, the
path that the key gives, and the files that make it up.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Product:
    """key: in the JSON object. path: what it gives, below dist/. files: Bazel target -> place below
    dist/ (a target with several outputs gives the first). links: symlink -> its text.
    """

    key: str
    path: str
    files: dict[str, str]
    links: dict[str, str] = dataclasses.field(default_factory=dict)


PRODUCTS: tuple[Product, ...] = (
    # The control program lies beside the library and finds it there.
    Product(
        key="fabric_dir",
        path="fabric",
        files={
            "//cc/fabric:libibverbs.so.1": "fabric/libibverbs.so.1",
            "//cc/fabric/ctl:railhop-fabric": "fabric/railhop-fabric",
        },
        links={"fabric/libibverbs.so": "libibverbs.so.1"},
    ),
    # RCCL looks for librccl-net.so, and makes librccl-net-NAME.so of NCCL_NET_PLUGIN=NAME.
    Product(
        key="plugin",
        path="plugin/libnccl-net-railhop.so",
        files={
            "//cc/plugin:stripped/libnccl-net-railhop.so": "plugin/libnccl-net-railhop.so",
        },
        links={
            "plugin/librccl-net.so": "libnccl-net-railhop.so",
            "plugin/librccl-net-railhop.so": "libnccl-net-railhop.so",
        },
    ),
    Product(
        key="netperf",
        path="netperf/railhop-netperf",
        files={"//cc/netperf:railhop-netperf": "netperf/railhop-netperf"},
    ),
)
