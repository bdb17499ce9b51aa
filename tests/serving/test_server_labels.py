"""Labels at start and at reload as TensorFlow Serving assigns them, and who may reload."""

import socket

import psutil
import pytest
import server_models
from google.protobuf import text_format
from server_models import request
from server_process import ServerProcess, grpc, model_service_pb2_grpc, status_of
from tensorflow_serving.apis import model_management_pb2

REFUSED = "Request to assign label to version {} of model half, which is not currently available"
SETS = {
    "": (),
    "allowed": ("--allow_version_labels_for_unavailable_models=true",),
    "forced": ("--force_allow_any_version_labels_for_unavailable_models=true",),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("labels")
    for version in (1, 2, 3):
        server_models.half_plus(folder / "half", version, version)
    return folder


def config(folder, versions, **labels):
    """A ModelServerConfig of specific versions with labels."""
    pairs = "".join(f'version_labels {{ key: "{k}" value: {v} }}' for k, v in labels.items())
    policy = "".join(f"versions: {version} " for version in versions)
    return (
        f'model_config_list {{ config {{ name: "half" base_path: "{folder}/half" '
        f'model_platform: "tensorflow" {pairs} '
        f"model_version_policy {{ specific {{ {policy} }} }} }} }}"
    )


def reload(server, text, channel=None):
    message = model_management_pb2.ReloadConfigRequest()
    text_format.Parse(text, message.config)
    models = model_service_pb2_grpc.ModelServiceStub(channel or server.channel)
    code, detail = status_of(models.HandleReloadConfigRequest, message, timeout=60)
    return code, detail.removesuffix(" for inference")


def answer(server, label):
    response = server.prediction.Predict(request("half", label=label, x=[0.0]), timeout=20)
    return response.model_spec.version.value, response.outputs["y"].float_val[0]


def start(folder, name, text):
    file = folder / f"{name}.config"
    file.write_text(text)
    return ServerProcess(folder, f"--model_config_file={file}", *SETS[name])


def test_without_the_flag_labels_are_for_what_is_loaded(folder):
    with start(folder, "", config(folder, (1,))) as server:
        early = config(folder, (1, 2), stable=1, canary=2)
        assert reload(server, early) == ("FAILED_PRECONDITION", REFUSED.format(2))
        assert status_of(server.prediction.Predict, request("half", label="stable", x=[0.0])) == (
            "INVALID_ARGUMENT",
            "Unrecognized servable version label: stable",
        )
        assert reload(server, config(folder, (1, 2), stable=1))[0] == "OK"
        assert reload(server, early)[0] == "OK"
        assert answer(server, "canary") == (2, 2.0)


def test_with_the_flag_labels_outlive_a_restart_and_move_to_loaded_versions_only(folder):
    with start(folder, "allowed", config(folder, (1, 2), stable=1, canary=2)) as server:
        assert (answer(server, "stable"), answer(server, "canary")) == ((1, 1.0), (2, 2.0))
        moved = config(folder, (1, 2, 3), stable=1, canary=3)
        assert reload(server, moved) == ("FAILED_PRECONDITION", REFUSED.format(3))
        assert answer(server, "canary") == (2, 2.0)
        assert reload(server, config(folder, (1, 2), stable=1, canary=2, next=7))[0] == "OK"
        assert status_of(server.prediction.Predict, request("half", label="next", x=[0.0])) == (
            "NOT_FOUND",
            "Servable not found for request: Specific(half, 7)",
        )
        assert reload(server, config(folder, (1, 2, 3), stable=1, canary=2))[0] == "OK"
        assert reload(server, moved)[0] == "OK"
        assert answer(server, "canary") == (3, 3.0)


def own_addresses():
    """Addresses of this host that others could reach it by."""
    families = (socket.AF_INET,)
    found = [one for ones in psutil.net_if_addrs().values() for one in ones]
    return [a.address for a in found if a.family in families and not a.address.startswith("127.")]


def test_other_hosts_may_not_reload_unless_asked(folder, tmp_path):
    addresses = own_addresses()
    if not addresses:
        pytest.skip("needs a network interface beside loopback")
    text = config(folder, (1,), canary=2)
    with start(folder, "forced", text) as local:
        assert reload(local, config(folder, (1, 2), canary=2))[0] == "OK"
        assert (
            reload(local, config(folder, (1, 2), canary=3))[0] == "OK"
        )  # --force_... lets it move
    base = f"--model_base_path={folder}/half"
    for flags, expected in (((), "PERMISSION_DENIED"), (("--allow_remote_reload",), "OK")):
        with ServerProcess(tmp_path, base, "--model_name=half", "--host=0.0.0.0", *flags) as server:
            with grpc.insecure_channel(f"{addresses[0]}:{server.port}") as channel:
                code, detail = reload(server, config(folder, (1,)), channel)
                assert code == expected and (code == "OK" or "--allow_remote_reload" in detail)
                stub = type(server.prediction)(channel)
                assert status_of(stub.Predict, request("half", x=[0.0]), timeout=10)[0] == "OK"
            assert reload(server, config(folder, (1,)))[0] == "OK"
