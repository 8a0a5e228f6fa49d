"""The manifest for Kubernetes and the script for Slurm: what each task is told, and what exit status 75 does."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from feat2vec.cluster.addresses import NODES, Addresses, read_addresses
from feat2vec.errors import RESTART_STATUS

LAUNCH = Path(__file__).parents[2] / "tools" / "launch"
MANIFEST: dict[tuple[str, str], Any] = {
    (document["kind"], document["metadata"]["name"]): document
    for document in yaml.safe_load_all((LAUNCH / "kubernetes.yaml").read_text())
}
SETTINGS = MANIFEST["ConfigMap", "feat2vec"]["data"]
SETS = {kind: MANIFEST["StatefulSet", f"feat2vec-{kind}"]["spec"] for kind in ("ps", "worker")}
JOB = MANIFEST["Job", "feat2vec-chief"]["spec"]
# Writes what it was called with; as the chief it ends with the next of the codes in the file `codes`.
FEAT2VEC = """#!/usr/bin/env bash
echo "$TF_CONFIG" | tr -d '\\n' >>"$SEEN/configs"; echo >>"$SEEN/configs"
echo "$@" >>"$SEEN/words"
[ "$1" = train ] || exit 0
code=$(head -n 1 "$SEEN/codes"); sed -i 1d "$SEEN/codes"; exit "$code"
"""
SRUN = """#!/usr/bin/env bash
while [[ "$1" == --* ]]; do [[ "$1" != --ntasks=* ]] || tasks=${1#*=}; shift; done
code=0
for ((task = tasks - 1; task >= 0; task--)); do SLURM_PROCID=$task "$@" || code=$?; done
exit "$code"
"""
HOSTNAME = '#!/usr/bin/env bash\necho "machine-$((SLURM_PROCID / 2))"\n'


@pytest.fixture
def programs(tmp_path: Path) -> Mapping[str, str]:
    """The environment of scripts, with programs that are not Slurm's and not feat2vec."""
    (tmp_path / "bin").mkdir()
    for name, text in (("feat2vec", FEAT2VEC), ("srun", SRUN), ("hostname", HOSTNAME)):
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "configs").touch()
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return {"PATH": path, "SEEN": str(tmp_path), "SLURM_SUBMIT_DIR": str(tmp_path), "PAUSE": "0"}


def seen(folder: Path) -> tuple[list[Addresses], list[str]]:
    """The addresses and the words that feat2vec was called with."""
    texts = (folder / "configs").read_text().splitlines()
    addresses = [read_addresses(text, ("chief", *NODES), any_host=True) for text in texts]
    return addresses, (folder / "words").read_text().splitlines()


def slurm(programs: Mapping[str, str], codes: str, **variables: str) -> subprocess.CompletedProcess[str]:
    (Path(programs["SEEN"]) / "codes").write_text(codes)
    command = ["bash", str(LAUNCH / "slurm.sh"), "films with spaces.yaml", "--data", "encoded"]
    return subprocess.run(command, env={**programs, **variables}, capture_output=True, text=True, timeout=30)


def test_slurm_tells_each_task_its_part(programs: Mapping[str, str], tmp_path: Path) -> None:
    assert not subprocess.run(["bash", "-n", str(LAUNCH / "slurm.sh")]).returncode
    assert slurm(programs, "0\n", SLURM_NTASKS="6").returncode == 0
    addresses, words = seen(tmp_path)
    tasks = [str(address.task) for address in addresses]
    assert tasks == ["worker 2", "worker 1", "worker 0", "ps 1", "ps 0", "chief 0"]
    assert len({json.dumps(address.jobs) for address in addresses}) == 1
    assert addresses[0].chief == "machine-0:7000"
    assert addresses[0].servers == ("machine-0:7001", "machine-1:7002")
    assert addresses[0].workers == ("machine-1:7003", "machine-2:7004", "machine-2:7005")
    train = "train films with spaces.yaml --data encoded --cluster --host 0.0.0.0 --resume"
    assert words == ["node --host 0.0.0.0"] * 5 + [train]
    assert not list(tmp_path.glob(".feat2vec-status*"))


def test_slurm_starts_again_where_that_is_asked_for(programs: Mapping[str, str], tmp_path: Path) -> None:
    done = slurm(programs, f"{RESTART_STATUS}\n{RESTART_STATUS}\n0\n", SLURM_NTASKS="4")
    assert done.returncode == 0
    assert done.stderr.count("start again, from the last checkpoint") == 2
    assert [word.split()[0] for word in seen(tmp_path)[1]] == ["node", "node", "node", "train"] * 3


@pytest.mark.parametrize("code", [1, 2])
def test_slurm_ends_with_the_chiefs_status(programs: Mapping[str, str], code: int) -> None:
    assert slurm(programs, f"{code}\n0\n", SLURM_NTASKS="4").returncode == code


def test_slurm_refuses_too_few_tasks(programs: Mapping[str, str]) -> None:
    done = slurm(programs, "0\n", SLURM_NTASKS="4", SERVERS="3")
    assert done.returncode == 2
    assert done.stderr == "slurm.sh: a chief, 3 servers and a worker are 5 tasks; received --ntasks=4\n"


# --- Kubernetes -----------------------------------------------------------------------------------------------------


def pod_of(kind: str) -> Any:
    return (JOB if kind == "chief" else SETS[kind])["template"]


def test_the_manifest_names_what_it_has() -> None:
    assert SETS["ps"]["replicas"] == int(SETTINGS["SERVERS"])
    assert SETS["worker"]["replicas"] == int(SETTINGS["WORKERS"])
    service = MANIFEST["Service", "feat2vec"]["spec"]
    assert service["clusterIP"] == "None"
    assert service["ports"][0]["port"] == int(SETTINGS["PORT"])
    policy = MANIFEST["NetworkPolicy", "feat2vec"]["spec"]
    assert (
        policy["podSelector"] == policy["ingress"][0]["from"][0]["podSelector"] == {"matchLabels": {"app": "feat2vec"}}
    )
    for kind in ("chief", "ps", "worker"):
        pod = pod_of(kind)
        assert pod["metadata"]["labels"] == {"app": "feat2vec", "task": kind}  # those of service and policy
        (container,) = pod["spec"]["containers"]
        assert container["envFrom"] == [{"configMapRef": {"name": "feat2vec"}}]
        assert {mount["name"] for mount in container["volumeMounts"]} == {
            volume["name"] for volume in pod["spec"]["volumes"]
        }
        assert container["ports"][0]["containerPort"] == int(SETTINGS["PORT"])
        if kind != "chief":
            assert SETS[kind]["selector"]["matchLabels"] == pod["metadata"]["labels"]
            assert SETS[kind]["serviceName"] == "feat2vec"
    assert (pod_of("chief")["spec"]["hostname"], pod_of("chief")["spec"]["subdomain"]) == (
        "feat2vec-chief-0",
        "feat2vec",
    )


def test_the_job_starts_again_where_that_is_asked_for() -> None:
    rules = {rule["action"]: rule["onExitCodes"] for rule in JOB["podFailurePolicy"]["rules"]}
    assert rules["Ignore"]["values"] == [RESTART_STATUS]
    assert rules["FailJob"]["values"] == [1, 2]
    assert {rule["containerName"] for rule in rules.values()} == {pod_of("chief")["spec"]["containers"][0]["name"]}
    assert pod_of("chief")["spec"]["restartPolicy"] == "Never"


def test_the_manifest_tells_each_pod_its_part(programs: Mapping[str, str], tmp_path: Path) -> None:
    names = ("start.sh", "is-of-this-chief.sh")
    for name in names:
        (tmp_path / name).write_text(SETTINGS[name].replace("/tmp/mark", str(tmp_path / "mark")))
    settings = {name: text for name, text in SETTINGS.items() if name not in names}
    environment = {**settings, **programs, "MARK": str(tmp_path / "chief")}
    (tmp_path / "codes").write_text(f"{RESTART_STATUS}\n0\n")

    def start(kind: str, hostname: str) -> int:
        """Run the command of a pod's container."""
        command = [part.replace("/scripts", str(tmp_path)) for part in pod_of(kind)["spec"]["containers"][0]["command"]]
        return subprocess.run(command, env={**environment, "HOSTNAME": hostname}, timeout=30).returncode

    def is_of_this_chief() -> bool:
        probe = SETS["ps"]["template"]["spec"]["containers"][0]["livenessProbe"]["exec"]["command"]
        command = [part.replace("/scripts", str(tmp_path)) for part in probe]
        return subprocess.run(command, env=environment, timeout=30).returncode == 0

    assert start("ps", "feat2vec-ps-1") == start("worker", "feat2vec-worker-3") == 0
    assert is_of_this_chief()  # there has been none
    assert start("chief", "feat2vec-chief-0") == RESTART_STATUS
    assert not is_of_this_chief()
    assert start("ps", "feat2vec-ps-0") == 0
    assert is_of_this_chief()
    assert start("chief", "feat2vec-chief-0") == 0
    assert not is_of_this_chief()
    addresses, words = seen(tmp_path)
    assert [str(address.task) for address in addresses] == ["ps 1", "worker 3", "chief 0", "ps 0", "chief 0"]
    assert addresses[0].servers == ("feat2vec-ps-0.feat2vec:7000", "feat2vec-ps-1.feat2vec:7000")
    assert addresses[2].address == "feat2vec-chief-0.feat2vec:7000"
    assert len(addresses[0].workers) == 4
    assert words[0] == "node --host 0.0.0.0"
    assert words[2] == f"train {SETTINGS['TRAIN']} --cluster --host 0.0.0.0 --resume"


@pytest.mark.slow
@pytest.mark.parametrize("document", MANIFEST.values(), ids=[" ".join(key) for key in MANIFEST])
def test_the_manifest_follows_the_schema_of_kubernetes(document: Any) -> None:
    kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="it takes feat2vec[launch]")
    kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)
    with pytest.raises(importlib.import_module("kubernetes_validate").ValidationError):
        kubernetes_validate.validate(
            {**document, "metadata": {"name": 3}}, kubernetes_validate.latest_version(), strict=True
        )
