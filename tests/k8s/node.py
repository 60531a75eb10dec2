"""The first process of a Kubernetes of one node, in its own namespaces: `python -m tests.k8s.node FOLDER`.

`cluster.py` runs it under `unshare --net --mount --pid --fork --mount-proc --kill-child`: its end is that of all other
processes, of the mounts and of the network. Of the machine it changes nothing but cgroups, which `cluster.py` removes.
What is unusual is for a machine with cgroups of version 1, without CAP_SYS_RESOURCE and dummy devices.
"""

import os
import secrets
import subprocess
import sys
import time
from pathlib import Path
from string import Template
from typing import Final

from tests.image.packages import HOME as DEBIAN
from tests.k8s import programs

NODE: Final = "10.99.0.1"
DNS: Final = "10.96.0.10"
_ADDRESSES: Final = {"node": NODE, "dns": DNS, "pods": "10.244.0.0/24", "pods6": "fd44::/64"}
_CONFIG: Final = Path(__file__).with_name("config")
_USERS: Final = {
    "admin": 'admin,admin,"system:masters"',
    "controllers": "system:kube-controller-manager,controllers,",
    "scheduler": "system:kube-scheduler,scheduler,",
    "proxy": "system:kube-proxy,proxy,",
    "node": 'system:node:node1,node,"system:nodes"',
}
"""Name of a kubeconfig → user, number and group."""
# No dummy devices: one end of a pair has the node's address. /sys is that of this network, with the machine's cgroups.
# The kubelet writes sysctls that are the whole machine's: it gets files in their place.
_ISOLATE: Final = f"""
ip link set lo up
ip link add node0 type veth peer name node0p && ip link set node0p up
ip addr add {NODE}/24 dev node0 && ip -6 addr add fd99::1/64 dev node0 nodad && ip link set node0 up
ip route add default dev node0 && ip -6 route add default dev node0
echo 1 > /proc/sys/net/ipv4/ip_forward
echo 1 > /proc/sys/net/ipv6/conf/all/forwarding
for hierarchy in /sys/fs/cgroup/*/; do mkdir -p "$hierarchy/$NAME"; done
mkdir -p cgroups && mount --rbind /sys/fs/cgroup cgroups
mount -t sysfs sysfs /sys && mount --rbind cgroups /sys/fs/cgroup
for sysctl in vm/overcommit_memory=1 kernel/panic=10 kernel/panic_on_oops=1; do
  file=$(basename "${{sysctl%=*}}"); echo "${{sysctl#*=}}" > "$file"; mount --bind "$file" "/proc/sys/${{sysctl%=*}}"
done
mkdir -p pki logs links cni
for link in iptables ip6tables; do
  for each in $link $link-save $link-restore; do ln -s {DEBIAN}/usr/sbin/xtables-nft-multi links/$each; done
done
echo "nameserver {DNS}" > resolv.conf
openssl genrsa -out pki/sa.key 2048
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=front -keyout pki/front.key -out pki/front.crt
"""
_ETCD: Final = """--data-dir=etcd --unsafe-no-fsync --listen-peer-urls=http://127.0.0.1:2380
--listen-client-urls=http://127.0.0.1:2379 --advertise-client-urls=http://127.0.0.1:2379"""
_API: Final = f"""--etcd-servers=http://127.0.0.1:2379 --service-cluster-ip-range=10.96.0.0/16,fd96::/112
--advertise-address={NODE} --secure-port=6443 --cert-dir=pki --token-auth-file=tokens.csv --allow-privileged=true
--authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction --client-ca-file=pki/front.crt
--service-account-issuer=https://kubernetes.default.svc --service-account-key-file=pki/sa.key
--service-account-signing-key-file=pki/sa.key --kubelet-preferred-address-types=InternalIP
--requestheader-client-ca-file=pki/front.crt --proxy-client-cert-file=pki/front.crt
--proxy-client-key-file=pki/front.key --requestheader-allowed-names=front
--requestheader-username-headers=X-Remote-User --requestheader-group-headers=X-Remote-Group
--requestheader-extra-headers-prefix=X-Remote-Extra-"""
_AS: Final = """--kubeconfig={0}.conf --authentication-kubeconfig={0}.conf --authorization-kubeconfig={0}.conf
--cert-dir=pki/{0}"""
_CONTROLLERS: Final = f"""{_AS.format("controllers")} --leader-elect=false --root-ca-file=pki/apiserver.crt
--service-account-private-key-file=pki/sa.key --use-service-account-credentials"""
_KUBELET: Final = f"""--config=kubelet.yaml --kubeconfig=node.conf --hostname-override=node1
--node-ip={NODE},fd99::1 --cert-dir=pki/kubelet"""
_POLICIES: Final = """--run-router=false --run-firewall=true --run-service-proxy=false --run-loadbalancer=false
--kubeconfig=admin.conf --hostname-override=node1 --service-cluster-ip-range=10.96.0.0/16 --health-port=0
--metrics-port=0 --enable-ipv6=false"""


def environment() -> dict[str, str]:
    """Return variables with which the programs are found, and their libraries."""
    roots = (programs.HOME / "root", DEBIAN)
    paths = [programs.HOME / "bin", *(root / sub for root in roots for sub in ("usr/sbin", "usr/bin"))]
    libraries = [root / "usr/lib/x86_64-linux-gnu" for root in roots]
    return {
        **os.environ,
        "PATH": os.pathsep.join([*map(str, paths), os.environ["PATH"]]),
        "LD_LIBRARY_PATH": os.pathsep.join(map(str, libraries)),
        "XTABLES_LIBDIR": str(libraries[1] / "xtables"),
    }


class Node:
    """What runs in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._environment = environment() | {"NAME": folder.name}
        self._environment["PATH"] = f"{folder}/links:{self._environment['PATH']}"

    def run(self, script: str) -> bool:
        """Run a script of the shell; return whether all of it succeeds."""
        return not subprocess.run(
            ["sh", "-ec", script], env=self._environment, cwd=self._folder, check=False
        ).returncode

    def start(self, program: str, options: str) -> None:
        """Start a program in the background, its output in `logs`."""
        with (self._folder / "logs" / program).open("ab") as log:
            command = [program, *options.split()]
            subprocess.Popen(command, env=self._environment, cwd=self._folder, stdout=log, stderr=log)

    def wait(self, script: str) -> None:
        """Wait until a script succeeds."""
        while not self.run(f"{script} > logs/wait 2>&1"):
            time.sleep(0.2)

    def configure(self) -> None:
        """Write the files of `config/`, and a kubeconfig for each user."""
        values = {**_ADDRESSES, "folder": self._folder, "name": self._folder.name, "programs": programs.HOME}
        for file in _CONFIG.rglob("*.*"):
            text = Template(file.read_text("utf-8")).substitute(values)
            (self._folder / file.relative_to(_CONFIG)).write_text(text, "utf-8")
        with (self._folder / "tokens.csv").open("w", encoding="utf-8") as tokens:
            for name, user in _USERS.items():
                token = secrets.token_hex()
                tokens.write(f"{token},{user}\n")
                text = Template((_CONFIG / "kubeconfig").read_text("utf-8")).substitute(values, token=token)
                (self._folder / f"{name}.conf").write_text(text, "utf-8")


def main() -> None:
    """Start all; then the file `up` says so, and this process waits for its end."""
    folder = Path(sys.argv[1])
    node = Node(folder)
    assert node.run(_ISOLATE)
    node.configure()
    node.start("etcd", _ETCD)
    node.start("kube-apiserver", _API)
    node.start("containerd", "--config=containerd.toml")
    node.wait("ctr -a containerd.sock version")
    node.wait("[ -s pki/apiserver.crt ] && kubectl --kubeconfig=admin.conf get --raw=/readyz")
    node.start("kube-controller-manager", _CONTROLLERS)
    node.start("kube-scheduler", f"{_AS.format('scheduler')} --leader-elect=false")
    node.start("kubelet", f"{_KUBELET} --root-dir={folder}/kubelet")
    node.start("kube-proxy", "--config=kube-proxy.yaml")
    node.wait("kubectl --kubeconfig=admin.conf get node node1")
    node.start("kube-router", _POLICIES)
    assert node.run("touch up")
    while True:
        os.wait()  # of orphans, too, whose parent this process is


if __name__ == "__main__":
    main()
