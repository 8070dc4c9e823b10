#!/usr/bin/env python3
"""The files of deploy/ and what docs/deployment.md says: accepted by the programs that they are for, and in step with limpid.

    deploy.py CASE LIMPID          CASE: a function check_... below; exit status 77: skipped, with the reason
"""
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
LAST_STEP_S = 10  # behind --drain-timeout (src/cli/cmd_serve.c)


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def program(name, package):
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    return found or skip(f"there is no {name} (Debian: {package})")


def accepted(command, **options):
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, **options)
    said = (done.stdout + done.stderr).strip()
    return [] if done.returncode == 0 else [f"{command[0]}: exit status {done.returncode}: {said}"]


def number(text, pattern):
    return float(re.search(pattern, text).group(1))


def check_kubernetes(limpid):
    """Every resource matches its schema, oldest and newest, without fields that it does not know; times fit each other."""
    try:
        import kubernetes_validate
        import yaml
    except ImportError as e:
        skip(f"the Python package {e.name} is missing (tests/clients/requirements.txt)")
    faults = []
    text = (DEPLOY / "kubernetes/limpid.yaml").read_text()
    resources = list(yaml.safe_load_all(text))
    for version in ("1.28", kubernetes_validate.latest_version()):
        for r in resources:
            try:
                kubernetes_validate.validate(r, version, strict=True)
            except kubernetes_validate.ValidationError as e:
                faults.append(f"{r['kind']} {r['metadata']['name']}, {version}: {e.message} at {list(e.path)}")
    pod = next(r for r in resources if r["kind"] == "StatefulSet")["spec"]["template"]["spec"]
    container = pod["containers"][0]
    needed = number(text, r"--drain-timeout=(\d+)") + LAST_STEP_S + float(container["lifecycle"]["preStop"]["exec"]["command"][1])
    if pod["terminationGracePeriodSeconds"] <= needed:
        faults.append(f"terminationGracePeriodSeconds is {pod['terminationGracePeriodSeconds']}, stopping may take {needed} s")
    volumes = {v["name"] for v in pod["volumes"]} | {"cache"}
    faults += [f"no volume {m['name']}" for m in container["volumeMounts"] if m["name"] not in volumes]
    selectors = [r["spec"]["selector"].get("matchLabels", r["spec"]["selector"]) for r in resources]
    if any(s != selectors[0] for s in selectors):
        faults.append(f"selectors differ: {selectors}")
    damaged = {**resources[0], "spec": {**resources[0]["spec"], "ports": [{"prot": 8080}]}}
    try:
        kubernetes_validate.validate(damaged, "1.28", strict=True)
        faults.append("the validator takes a field that there is not")
    except kubernetes_validate.ValidationError:
        pass
    return faults


def check_systemd(limpid):
    analyze = program("systemd-analyze", "systemd")
    units = sorted((DEPLOY / "systemd").iterdir())
    with tempfile.TemporaryDirectory() as folder:
        for u in units:  # the program must be there
            pathlib.Path(folder, u.name).write_text(u.read_text().replace("/usr/local/bin/limpid", limpid))
        return accepted([analyze, "verify", *(os.path.join(folder, u.name) for u in units)])


def check_haproxy(limpid):
    return accepted([program("haproxy", "haproxy"), "-c", "-f", str(DEPLOY / "haproxy/haproxy.cfg")])


def check_nginx(limpid):
    nginx = program("nginx", "nginx-light")
    with tempfile.TemporaryDirectory() as folder:
        text = (DEPLOY / "nginx/limpid.conf").read_text().replace("listen 8000;", f"listen unix:{folder}/socket;")
        pathlib.Path(folder, "limpid.conf").write_text(text)
        paths = "".join(f"{n}_temp_path {folder}/{n};" for n in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        pathlib.Path(folder, "nginx.conf").write_text(
            f"pid {folder}/pid; error_log stderr; events {{}} http {{ access_log off; {paths} include {folder}/limpid.conf; }}\n")
        return accepted([nginx, "-t", "-c", os.path.join(folder, "nginx.conf")])


def check_slurm(limpid):
    script = DEPLOY / "slurm/limpid.sbatch"
    return accepted([program("shellcheck", "shellcheck"), str(script)]) + accepted(["bash", "-n", str(script)])


def used_options():
    """(where, command, option) of every limpid command line in deploy/ and the document."""
    for path in [p for p in DEPLOY.rglob("*") if p.is_file()]:
        text = "\n".join(line for line in path.read_text().splitlines() if not line.startswith("#"))
        if path.suffix == ".yaml":
            text = "limpid serve " + " ".join(re.findall(r"^ +- (--\S+)", text, re.M))
        yield from lines_of(path.name, text.replace("\\\n", " "))
    document = (ROOT / "docs/deployment.md").read_text()
    yield from lines_of("deployment.md", "\n".join(re.findall(r"^    .*|^```(?:.|\n)*?^```", document, re.M)).replace("\\\n", " "))


def lines_of(where, text):
    for command, rest in re.findall(r"limpid\"? (serve|run|inspect|synth|bench)\b(.*)", text):
        for option in re.findall(r"(?<=\s)--[a-z-]+", rest.split("#")[0]):
            yield where, command, option


def check_options(limpid):
    """What is named exists, and the units' times fit the drain."""
    known, faults = {}, []
    used = list(used_options())
    for where, command, option in used:
        if command not in known:
            known[command] = subprocess.run([limpid, command, "--help"], capture_output=True, text=True).stdout
        if not re.search(rf"^ +{option}\b", known[command], re.M):
            faults.append(f"{where}: limpid {command} has no {option}")
    places = {w for w, _, _ in used}
    faults += [f"no command line found in {w}" for w in ("limpid.yaml", "limpid.service", "limpid.sbatch", "deployment.md") if w not in places]
    drain = number(subprocess.run([limpid, "serve", "--help"], capture_output=True, text=True).stdout,
                   r"(?s)--drain-timeout S.*?\(default (\d+)\)")
    stop = number((DEPLOY / "systemd/limpid.service").read_text(), r"TimeoutStopSec=(\d+)")
    if stop <= drain + LAST_STEP_S:
        faults.append(f"limpid.service: TimeoutStopSec is {stop}, stopping may take {drain + LAST_STEP_S} s")
    return faults


def check_process_1(limpid):
    """As a container's first process: told to stop it drains, told twice it ends at once."""
    inside = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if subprocess.run([*inside, "true"], capture_output=True).returncode:
        skip("this system makes no process name spaces (unshare --user --pid)")
    faults = []
    for n_signals, expected in ((1, 0), (2, 128 + signal.SIGTERM)):
        server = subprocess.Popen([*inside, limpid, "serve", str(ROOT / "models/mini-glm-dsa.gguf"), "--port", "0", "--threads", "1",
                                   "--self-check", "off", "--drain-timeout", "20"],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        port = re.search(r":(\d+)$", server.stdout.readline().strip()).group(1)
        first = int(pathlib.Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()[0])
        request = subprocess.Popen(["curl", "-s", f"http://127.0.0.1:{port}/v1/completions", "-d",
                                    '{"prompt": "1, 2,", "max_tokens": %d, "ignore_eos": true}' % (20 if n_signals == 1 else 4000)],
                                   stdout=subprocess.PIPE, text=True)
        time.sleep(0.5)
        for _ in range(n_signals):
            os.kill(first, signal.SIGTERM)
            time.sleep(0.3)
        answer = request.communicate()[0]
        try:
            status = server.wait(timeout=60)
        except subprocess.TimeoutExpired:
            server.kill()
            status = "none within 60 s"
        if status != expected:
            faults.append(f"{n_signals} signals: exit status {status}, expected {expected}: {server.stderr.read()}")
        if n_signals == 1 and '"finish_reason":"length"' not in answer.replace(" ", ""):
            faults.append(f"the running request got {answer!r}")
    return faults


def main():
    faults = globals()[f"check_{sys.argv[1]}"](sys.argv[2])
    print("\n".join(faults) or "ok")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
