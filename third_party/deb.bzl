"""Repository rules that take every C++ dependency from Debian. They make symlinks only.

Source packages (deb_source_repository) are fetched and unpacked by tools/setup. Where they lie:
$DEBSRC_ROOT if set, else /opt/debsrc (root's), else ~/.cache/railhop/debsrc (an ordinary user's).
"""

def _debsrc_root(rctx):
    env = rctx.os.environ
    if "DEBSRC_ROOT" in env:
        return env["DEBSRC_ROOT"]
    if rctx.path("/opt/debsrc").exists or "HOME" not in env:
        return "/opt/debsrc"
    return env["HOME"] + "/.cache/railhop/debsrc"

def _deb_source_repository_impl(rctx):
    root = rctx.path(_debsrc_root(rctx) + "/" + rctx.attr.package)
    if not rctx.path(str(root) + "/.stamp").exists:
        fail("Debian's source of '%s' not found at %s: run tools/setup" % (rctx.attr.package, root))
    for entry in root.readdir():
        base = entry.basename
        if base in ["WORKSPACE", "WORKSPACE.bazel", "MODULE.bazel", "debian", ".pc"]:
            continue
        if rctx.attr.build_file and base in ["BUILD", "BUILD.bazel"]:
            continue
        if rctx.attr.entries and base not in rctx.attr.entries:
            continue
        rctx.symlink(entry, base)
    if rctx.attr.build_file:
        rctx.symlink(rctx.attr.build_file, "BUILD.bazel")
    rctx.file("WORKSPACE", "workspace(name = \"%s\")\n" % rctx.name)

deb_source_repository = repository_rule(
    implementation = _deb_source_repository_impl,
    attrs = {
        "build_file": attr.label(
            allow_single_file = True,
            doc = "BUILD file that takes the place of the package's own",
        ),
        "entries": attr.string_list(doc = "top-level entries to link; empty means all"),
        "package": attr.string(mandatory = True, doc = "Debian source package"),
    },
    environ = ["DEBSRC_ROOT"],
    local = True,
    doc = "Links a Debian source package that tools/setup has unpacked.",
)

def _deb_installed_repository_impl(rctx):
    for dst, src in rctx.attr.links.items():
        path = rctx.path(src)
        if not path.exists:
            fail("%s not found: apt-get install %s" % (src, rctx.attr.package))
        rctx.symlink(path, dst)
    rctx.symlink(rctx.attr.build_file, "BUILD.bazel")
    rctx.file("WORKSPACE", "workspace(name = \"%s\")\n" % rctx.name)

deb_installed_repository = repository_rule(
    implementation = _deb_installed_repository_impl,
    attrs = {
        "build_file": attr.label(mandatory = True, allow_single_file = True),
        "links": attr.string_dict(
            mandatory = True,
            doc = "name in the repository -> absolute path",
        ),
        "package": attr.string(mandatory = True, doc = "Debian package, for the error message"),
    },
    local = True,
    doc = "Links files of an installed Debian package.",
)

def _platforms_with_wasm_impl(rctx):
    src = rctx.attr.path
    rctx.file("WORKSPACE", "workspace(name = \"platforms\")\n")
    rctx.file("BUILD", rctx.read(src + "/BUILD"))
    rctx.file("os/BUILD", rctx.read(src + "/os/BUILD"))
    cpu = rctx.read(src + "/cpu/BUILD")
    for extra in ["wasm32", "wasm64"]:
        if "\"%s\"" % extra not in cpu:
            cpu += """
constraint_value(
    name = "%s",
    constraint_setting = ":cpu",
)
""" % extra
    rctx.file("cpu/BUILD", cpu)

platforms_with_wasm = repository_rule(
    implementation = _platforms_with_wasm_impl,
    attrs = {"path": attr.string(default = "/usr/share/bazel/platforms")},
    local = True,
    doc = "Bazel 4's own @platforms with cpu:wasm32 added, which Abseil's BUILD files name.",
)
