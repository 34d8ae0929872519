"""A folder put together from files of other packages."""

def _folder_impl(ctx):
    copies = []
    for target, place in ctx.attr.files.items():
        for file in target.files.to_list():
            copy = ctx.actions.declare_file("%s/%s%s" % (ctx.label.name, place, file.basename))
            ctx.actions.run_shell(
                outputs = [copy],
                inputs = [file],
                arguments = [file.path, copy.path],
                command = "cp -L -- \"$1\" \"$2\"",
                mnemonic = "Copy",
            )
            copies.append(copy)
    return [DefaultInfo(files = depset(copies), runfiles = ctx.runfiles(copies))]

folder = rule(
    implementation = _folder_impl,
    attrs = {
        "files": attr.label_keyed_string_dict(
            allow_files = True,
            doc = "target -> folder below this one, with / at its end",
        ),
    },
    doc = """NAME/PLACE/FILE for each file. Copies: a program that looks beside itself finds what is
beside it here, which it would not behind a link.""",
)
