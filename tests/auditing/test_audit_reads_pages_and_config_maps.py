"""Fenced blocks of a page, and ConfigMaps that the manifest's own file holds."""

from __future__ import annotations

import pytest

from qwendeploy.auditing.reading.launch import ForeignLaunch
from qwendeploy.auditing.reading.read import read_launch_text
from qwendeploy.errors import UserError

PAGE = """# Serving

It's one card; don't add `-tp`.

1. start it

   ```console
   $ docker run --gpus all \\
       vllm/vllm-openai:v0.25.1 a/first --port 8000
   # wait
   user@box:~$ curl localhost:8000/health
   ```

~~~bash
vllm serve a/second --port 8001
~~~

```yaml
model: a/not-a-launch
command: vllm serve a/third
```

```yaml
services:
  q:
    image: vllm/vllm-openai:v0.25.1
    command: [a/fourth]
```

```bash
echo "an open quote
```

```
vllm serve a/fifth
"""


def texts(launch: ForeignLaunch) -> list[str]:
    return [word.text for word in launch.arguments]


def test_a_pages_blocks_are_read_at_their_lines() -> None:
    found = read_launch_text(PAGE, "README.md")
    assert [texts(launch)[0] for launch in found] == ["a/first", "a/second", "a/fourth"]
    assert [launch.place.line for launch in found] == [8, 15, 26]
    assert texts(found[0]) == ["a/first", "--port", "8000"]
    assert len({launch.source for launch in found}) == 3


def test_a_page_is_told_by_its_first_lines_too() -> None:
    assert len(read_launch_text(PAGE, "stdin")) == 3


def test_a_script_is_no_page() -> None:
    script = "# start\nvllm serve a/b --chat-template '```'\n"
    (launch,) = read_launch_text(script, "run.sh")
    assert texts(launch) == ["a/b", "--chat-template", "```"]


def test_a_page_without_a_launch_says_so() -> None:
    with pytest.raises(UserError, match="no server command found"):
        read_launch_text("# Notes\n\nvllm serve is nice\n", "notes.md")


MANIFEST = """
apiVersion: v1
kind: ConfigMap
metadata: {name: env}
data: {MODEL: a/b, LEN: "4096"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: conf}
data:
  serve.yaml: |
    model: c/d
    max-model-len: 8192
---
apiVersion: v1
kind: Pod
spec:
  containers:
  - name: q
    image: vllm/vllm-openai:v0.25.1
    ENVIRONMENT
    args: [ARGS]
    volumeMounts: [MOUNTS]
  volumes: [VOLUMES]
"""


def pod(
    environment: str = "", args: str = "", mounts: str = "", volumes: str = ""
) -> ForeignLaunch:
    text = MANIFEST.replace("ENVIRONMENT", environment).replace("ARGS", args)
    (launch,) = read_launch_text(
        text.replace("MOUNTS", mounts).replace("VOLUMES", volumes), "a.yml"
    )
    return launch


@pytest.mark.parametrize(
    ("environment", "args", "expected"),
    [
        (
            "envFrom: [{configMapRef: {name: env}}]",
            "$(MODEL), --max-model-len=$(LEN)",
            ["a/b", "--max-model-len=4096"],
        ),
        ("envFrom: [{prefix: Q_, configMapRef: {name: env}}]", "$(Q_MODEL)", ["a/b"]),
        (
            "env: [{name: M, valueFrom: {configMapKeyRef: {name: env, key: MODEL}}}]",
            "$(M)",
            ["a/b"],
        ),
        (
            "envFrom: [{configMapRef: {name: env}}]\n    env: [{name: MODEL, value: x/y}]",
            "$(MODEL)",
            ["x/y"],
        ),
    ],
)
def test_variables_of_a_config_map_are_put_in(
    environment: str, args: str, expected: list[str]
) -> None:
    launch = pod(environment, args)
    assert texts(launch) == expected
    assert launch.unread == ()


def test_a_map_of_another_file_stays_unread() -> None:
    launch = pod("envFrom: [{configMapRef: {name: gone}}, {secretRef: {name: s}}]", "$(MODEL)")
    assert texts(launch) == ["$MODEL"]
    assert launch.unread == ("variables of configMap gone", "variables of secret s")


@pytest.mark.parametrize(
    ("path", "mount", "volume"),
    [
        ("/etc/q/serve.yaml", "mountPath: /etc/q", "configMap: {name: conf}"),
        ("/etc/q/serve.yaml", "mountPath: /etc/q/", "configMap: {name: conf}"),
        ("/q.yaml", "mountPath: /q.yaml, subPath: serve.yaml", "configMap: {name: conf}"),
        (
            "/etc/q/in/it.yaml",
            "mountPath: /etc/q",
            "configMap: {name: conf, items: [{key: serve.yaml, path: in/it.yaml}]}",
        ),
    ],
)
def test_a_configuration_file_of_a_config_map_is_read(path: str, mount: str, volume: str) -> None:
    launch = pod(
        args=f"--config, {path}",
        mounts=f"{{name: v, {mount}}}",
        volumes=f"{{name: v, {volume}}}",
    )
    assert texts(launch) == ["--model", "c/d", "--max-model-len", "8192"]
    assert launch.arguments[0].place.file == path


def test_a_file_that_the_map_lacks_stays_unread() -> None:
    launch = pod(
        args="--config, /etc/q/other.yaml",
        mounts="{name: v, mountPath: /etc/q}",
        volumes="{name: v, configMap: {name: conf}}",
    )
    assert launch.unread == ("configuration file /etc/q/other.yaml",)
