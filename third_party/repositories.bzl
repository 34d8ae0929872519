"""All external repositories: used by WORKSPACE (Bazel 4) and by extensions.bzl (bzlmod)."""

load("//third_party:deb.bzl", "deb_installed_repository", "deb_source_repository")
load("//third_party:interpreters.bzl", "interpreters_repository")
load("//third_party:venv.bzl", "venv_package_repository", "venv_python_repository", "wheelhouse_repository")

def railhop_repositories():
    """Declares every dependency. None of them is downloaded by Bazel."""
    deb_source_repository(
        name = "com_google_absl",
        package = "abseil",
    )
    deb_source_repository(
        name = "com_google_protobuf",
        package = "protobuf",
        build_file = "//third_party/protobuf:protobuf.BUILD",
        entries = [
            "LICENSE",
            "src",
        ],
    )
    deb_source_repository(
        name = "com_google_googletest",
        package = "googletest",
        build_file = "//third_party/googletest:googletest.BUILD",
        entries = [
            "googlemock",
            "googletest",
        ],
    )
    deb_installed_repository(
        name = "rdma_core",
        package = "libibverbs-dev librdmacm-dev",
        build_file = "//third_party/rdma_core:rdma_core.BUILD",
        links = {
            "include/infiniband": "/usr/include/infiniband",
            "include/rdma": "/usr/include/rdma",
        },
    )
    deb_installed_repository(
        name = "local_python",
        package = "python3-dev",
        build_file = "//third_party/python:python.BUILD",
        links = {"include/python3.11": "/usr/include/python3.11"},
    )
    deb_installed_repository(
        name = "local_protoc",
        package = "protobuf-compiler",
        build_file = "//third_party/protobuf:protoc.BUILD",
        links = {"protoc": "/usr/bin/protoc"},
    )
    deb_installed_repository(
        name = "valgrind",
        package = "valgrind",
        build_file = "//third_party/valgrind:valgrind.BUILD",
        links = {"include/valgrind": "/usr/include/valgrind"},
    )
    venv_package_repository(
        name = "pybind11",
        build_file = "//third_party/pybind11:pybind11.BUILD",
        links = {
            "LICENSE": "pybind11-3.1.0.dist-info/licenses/LICENSE",
            "include/pybind11": "pybind11/include/pybind11",
        },
    )
    venv_python_repository(name = "railhop_venv")
    wheelhouse_repository(name = "wheelhouse")
    interpreters_repository(
        name = "interpreters",
        find = "//third_party/python:find_interpreters.py",
    )
