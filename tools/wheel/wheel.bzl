"""The rule that makes a wheel."""

def place(extension, suffix):
    """Where the file of an extension is in a wheel.

    Args:
      extension: label of the pybind_extension.
      suffix: of the Python's compiled modules.

    Returns:
      Such as "railhop/_native.cpython-311-x86_64-linux-gnu.so".
    """
    return extension[len("//python/"):].replace(":", "/") + suffix

def _wheel_impl(ctx):
    folder = ctx.actions.declare_directory(ctx.label.name)
    inputs = [ctx.file.project, ctx.file.version_file, ctx.file.readme]
    args = ctx.actions.args()
    args.use_param_file("@%s", use_always = True)
    args.set_param_file_format("multiline")
    args.add("--out=" + folder.path)
    args.add("--python-tag=" + ctx.attr.python_tag)
    args.add("--project=" + ctx.file.project.path)
    args.add("--version-file=" + ctx.file.version_file.path)
    args.add("--readme=" + ctx.file.readme.path)
    for target, name in ctx.attr.license_files.items():
        inputs += target.files.to_list()
        args.add("--license=%s=%s" % (name, target.files.to_list()[0].path))
    for file in ctx.files.python:
        if not file.short_path.startswith("python/"):
            fail("%s is not below python/" % file.short_path)
        inputs.append(file)
        args.add("--file=%s=%s" % (file.short_path[len("python/"):], file.path))
    for target, name in ctx.attr.files.items():
        (file,) = target.files.to_list()
        inputs.append(file)
        args.add("--file=%s=%s" % (name, file.path))
    ctx.actions.run(
        outputs = [folder],
        inputs = inputs,
        executable = ctx.executable._maker,
        arguments = [args],
        mnemonic = "Wheel",
        use_default_shell_env = True,
    )
    return [DefaultInfo(files = depset([folder]), runfiles = ctx.runfiles([folder]))]

wheel = rule(
    implementation = _wheel_impl,
    attrs = {
        "files": attr.label_keyed_string_dict(
            allow_files = True,
            doc = "target with one file -> place in the wheel",
        ),
        "license_files": attr.label_keyed_string_dict(allow_files = True, doc = "target -> name"),
        "project": attr.label(mandatory = True, allow_single_file = True),
        "python": attr.label_list(
            allow_files = True,
            doc = "files below python/, placed as they lie there",
        ),
        "python_tag": attr.string(mandatory = True, doc = "such as cp311"),
        "readme": attr.label(mandatory = True, allow_single_file = True),
        "version_file": attr.label(mandatory = True, allow_single_file = True),
        "_maker": attr.label(default = "//tools/wheel:make_wheel", executable = True, cfg = "exec"),
    },
    doc = "A folder with one wheel in it: its name says what it needs, which is worked out.",
)
