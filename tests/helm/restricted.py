"""The restricted Pod Security profile, rule by rule, and what the house asks beside it.

https://kubernetes.io/docs/concepts/security/pod-security-standards/ as of Kubernetes 1.37, for Linux.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from tests.helm.charts import Manifest, containers

_VOLUMES: Final = {
    *("configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"),
}
_SYSCTLS: Final = {
    *("kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.ip_unprivileged_port_start"),
    *("net.ipv4.tcp_syncookies", "net.ipv4.ping_group_range", "net.ipv4.ip_local_reserved_ports"),
    *("net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl"),
    *("net.ipv4.tcp_keepalive_probes", "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"),
}
_SELINUX: Final = {None, "", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"}
_HOOKS: Final = ("startupProbe", "livenessProbe", "readinessProbe")


class Rule(NamedTuple):
    """One row of the profile."""

    name: str
    holds: Callable[[Manifest], bool]
    """Of the spec of a pod."""
    broken: Callable[[Manifest], object]
    """Breaks it, and no other rule needs to hold then."""


def offences(pod: Manifest) -> list[str]:
    """Return the rules that a pod's spec breaks."""
    return [rule.name for rule in RULES if not rule.holds(pod)]


def _each(check: Callable[[Manifest], bool]) -> Callable[[Manifest], bool]:
    return lambda pod: all(check(container) for container in containers(pod))


def _security(place: Manifest) -> Manifest:
    found: Manifest = place.get("securityContext", {})
    return found


def _either(pod: Manifest, name: str, allowed: Callable[[Any], bool]) -> bool:
    """Whether each container says so, or leaves it to a pod that does."""
    above = _security(pod).get(name)
    return all(allowed(_security(c).get(name, above)) for c in containers(pod))


def _everywhere(pod: Manifest, name: str, allowed: Callable[[Any], bool]) -> bool:
    return all(allowed(_security(place).get(name)) for place in (pod, *containers(pod)))


def _hosts(container: Manifest) -> Iterator[object]:
    handlers = [container.get(name, {}) for name in _HOOKS] + list(container.get("lifecycle", {}).values())
    for handler in handlers:
        yield from (handler.get(kind, {}).get("host") for kind in ("httpGet", "tcpSocket"))


def _seccomp(profile: Manifest | None) -> bool:
    return profile is not None and profile["type"] in {"RuntimeDefault", "Localhost"}


def _drops_all(container: Manifest) -> bool:
    capabilities = _security(container).get("capabilities", {})
    return "ALL" in capabilities.get("drop", ()) and set(capabilities.get("add", ())) <= {"NET_BIND_SERVICE"}


def _last(pod: Manifest) -> Manifest:
    """Return the container that a broken manifest is broken in."""
    found: Manifest = pod["containers"][-1]
    return found


def _set(name: str, value: object) -> Callable[[Manifest], object]:
    return lambda pod: _last(pod)["securityContext"].update({name: value})


RULES: Final = (
    Rule(
        "host namespaces",
        lambda pod: not any(pod.get(name) for name in ("hostNetwork", "hostPID", "hostIPC")),
        lambda pod: pod.update(hostPID=True),
    ),
    Rule(
        "host ports",
        _each(lambda c: not any(port.get("hostPort") for port in c.get("ports", ()))),
        lambda pod: _last(pod).update(ports=[{"containerPort": 80, "hostPort": 80}]),
    ),
    Rule(
        "hosts of probes and hooks",
        _each(lambda c: not any(_hosts(c))),
        lambda pod: _last(pod).update(livenessProbe={"httpGet": {"host": "10.0.0.1", "port": 80}}),
    ),
    Rule(
        "host process",
        lambda pod: _everywhere(pod, "windowsOptions", lambda v: not (v or {}).get("hostProcess")),
        _set("windowsOptions", {"hostProcess": True}),
    ),
    Rule("privileged", _each(lambda c: not _security(c).get("privileged")), _set("privileged", value=True)),
    Rule(
        "volume types",
        lambda pod: all(set(volume) - {"name"} <= _VOLUMES for volume in pod.get("volumes", ())),
        lambda pod: pod.setdefault("volumes", []).append({"name": "x", "hostPath": {"path": "/"}}),
    ),
    Rule(
        "privilege escalation",
        _each(lambda c: _security(c).get("allowPrivilegeEscalation") is False),
        lambda pod: _last(pod)["securityContext"].pop("allowPrivilegeEscalation"),
    ),
    Rule(
        "not as root",
        lambda pod: _either(pod, "runAsNonRoot", lambda v: v is True),
        _set("runAsNonRoot", value=False),
    ),
    Rule("not user 0", lambda pod: _everywhere(pod, "runAsUser", lambda v: v != 0), _set("runAsUser", 0)),
    Rule(
        "seccomp",
        lambda pod: _either(pod, "seccompProfile", _seccomp),
        _set("seccompProfile", {"type": "Unconfined"}),
    ),
    Rule("capabilities dropped", _each(_drops_all), _set("capabilities", {"drop": ["NET_RAW"]})),
    Rule(
        "capabilities added",
        _each(_drops_all),
        _set("capabilities", {"drop": ["ALL"], "add": ["SYS_ADMIN"]}),
    ),
    Rule(
        "AppArmor",
        lambda pod: _everywhere(pod, "appArmorProfile", lambda v: v is None or v["type"] != "Unconfined"),
        _set("appArmorProfile", {"type": "Unconfined"}),
    ),
    Rule(
        "SELinux type",
        lambda pod: _everywhere(pod, "seLinuxOptions", lambda v: (v or {}).get("type") in _SELINUX),
        _set("seLinuxOptions", {"type": "spc_t"}),
    ),
    Rule(
        "SELinux user and role",
        lambda pod: _everywhere(pod, "seLinuxOptions", lambda v: not {"user", "role"} & set(v or ())),
        _set("seLinuxOptions", {"user": "system_u"}),
    ),
    Rule(
        "proc mount",
        _each(lambda c: _security(c).get("procMount", "Default") == "Default"),
        _set("procMount", "Unmasked"),
    ),
    Rule(
        "sysctls",
        lambda pod: {s["name"] for s in _security(pod).get("sysctls", ())} <= _SYSCTLS,
        lambda pod: pod.setdefault("securityContext", {}).update(sysctls=[{"name": "kernel.msgmax", "value": "1"}]),
    ),
    # The house's own
    Rule(
        "no token of a service account",
        lambda pod: pod.get("automountServiceAccountToken") is False,
        lambda pod: pod.pop("automountServiceAccountToken"),
    ),
)

OURS: Final = (
    Rule(
        "read-only root",
        _each(lambda c: _security(c).get("readOnlyRootFilesystem") is True),
        lambda pod: _last(pod)["securityContext"].pop("readOnlyRootFilesystem"),
    ),
    Rule(
        "user 65532",
        lambda pod: _either(pod, "runAsUser", lambda v: v == 65532),
        _set("runAsUser", 1000),
    ),
    Rule(
        "memory is bounded, CPU is asked for",
        _each(lambda c: "memory" in c["resources"].get("limits", ()) and "cpu" in c["resources"]["requests"]),
        lambda pod: _last(pod)["resources"].pop("limits"),
    ),
)
"""Of the bridge's containers: a pod may have others."""
