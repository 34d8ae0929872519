"""Protobuf macro around Debian's protoc: works alike on any Bazel, with no proto rules of its own.

proto_module(name = "x", srcs = ["x.proto"]) gives x (the sources), x_cc and x_py.
"""

load("@rules_cc//cc:defs.bzl", "cc_library")
load("@rules_python//python:defs.bzl", "py_library")

_ProtoSrcsInfo = provider(
    doc = "The .proto files of a proto_module.",
    fields = {
        "direct": "list of File: its own",
        "transitive": "depset of File: those and all that they import",
    },
)

def _proto_srcs_impl(ctx):
    return [
        _ProtoSrcsInfo(
            direct = ctx.files.srcs,
            transitive = depset(
                ctx.files.srcs,
                transitive = [d[_ProtoSrcsInfo].transitive for d in ctx.attr.deps],
            ),
        ),
        DefaultInfo(files = depset(ctx.files.srcs)),
    ]

_proto_srcs = rule(
    implementation = _proto_srcs_impl,
    attrs = {
        "deps": attr.label_list(providers = [_ProtoSrcsInfo]),
        "srcs": attr.label_list(allow_files = [".proto"]),
    },
)

def _well_known_root(files):
    """The folder that google/protobuf/*.proto lie in."""
    marker = "/google/protobuf/"
    path = files[0].path
    return path[:path.rindex(marker)]

def _protoc_gen_impl(ctx):
    info = ctx.attr.proto[_ProtoSrcsInfo]
    outs = []
    for src in info.direct:
        stem = src.basename[:-len(".proto")]
        for suffix in ctx.attr.suffixes:
            outs.append(ctx.actions.declare_file(stem + suffix))
    args = ctx.actions.args()
    args.add("--%s_out=%s" % (ctx.attr.lang, ctx.bin_dir.path))
    args.add("-I.")
    args.add("-I" + _well_known_root(ctx.files._well_known))
    args.add_all(info.direct)
    ctx.actions.run(
        executable = ctx.executable._protoc,
        arguments = [args],
        inputs = depset(ctx.files._well_known, transitive = [info.transitive]),
        outputs = outs,
        mnemonic = "Protoc" + ctx.attr.lang.capitalize(),
        progress_message = "protoc --%s_out %s" % (ctx.attr.lang, ctx.label),
    )
    return [
        DefaultInfo(files = depset(outs)),
        OutputGroupInfo(
            hdrs = depset([f for f in outs if f.extension == "h"]),
            srcs = depset([f for f in outs if f.extension != "h"]),
        ),
    ]

_protoc_gen = rule(
    implementation = _protoc_gen_impl,
    attrs = {
        "lang": attr.string(),
        "proto": attr.label(providers = [_ProtoSrcsInfo]),
        "suffixes": attr.string_list(),
        "_protoc": attr.label(
            allow_single_file = True,
            cfg = "exec",
            default = "@local_protoc//:protoc",
            executable = True,
        ),
        "_well_known": attr.label(default = "@com_google_protobuf//:well_known_protos"),
    },
)

def proto_module(name, srcs, deps = [], lite = False, visibility = None, **kwargs):
    """Defines NAME (sources), NAME_cc (cc_library) and NAME_py (py_library).

    Args:
      name: base name.
      srcs: .proto files of this package (they import by path from the repository's root).
      deps: other proto_module labels.
      lite: the files say `option optimize_for = LITE_RUNTIME`: NAME_cc then needs the small runtime
        only.
      visibility: of all three.
      **kwargs: passed to every target (tags, testonly).
    """
    _proto_srcs(name = name, srcs = srcs, deps = deps, visibility = visibility, **kwargs)
    _protoc_gen(
        name = name + "_cc_gen",
        lang = "cpp",
        proto = name,
        suffixes = [
            ".pb.h",
            ".pb.cc",
        ],
        **kwargs
    )
    for group in ["hdrs", "srcs"]:
        native.filegroup(
            name = name + "_cc_" + group,
            srcs = [name + "_cc_gen"],
            output_group = group,
            **kwargs
        )
    cc_library(
        name = name + "_cc",
        srcs = [name + "_cc_srcs"],
        hdrs = [name + "_cc_hdrs"],
        copts = ["-w"],
        visibility = visibility,
        deps = [d + "_cc" for d in deps] + [
            "@com_google_protobuf//:protobuf_lite" if lite else "@com_google_protobuf//:protobuf",
        ],
        **kwargs
    )
    _protoc_gen(
        name = name + "_py_gen",
        lang = "python",
        proto = name,
        suffixes = ["_pb2.py"],
        **kwargs
    )
    py_library(
        name = name + "_py",
        srcs = [name + "_py_gen"],
        visibility = visibility,
        deps = [d + "_py" for d in deps],
        **kwargs
    )
