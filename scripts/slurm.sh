#!/usr/bin/env bash
# Run Slurm on this machine, with accounting, which is needed to recognize a killed job. For Debian, as root:
#   apt-get install slurm-wlm munge slurmdbd mariadb-server
#   scripts/slurm.sh start FOLDER [CORES [NODES]]; export SLURM_CONF=FOLDER/slurm.conf; ...; scripts/slurm.sh stop FOLDER
# All state is in FOLDER, and every port is on 127.0.0.1. The nodes node1, node2, ... are all this machine, and each
# reports that it has CORES cores. A job of the partition `urgent` takes the cores of jobs of `main`, the default.
set -Eeuo pipefail
[[ ${1:-} =~ ^(start|stop)$ && ${2:-} ]] || { echo "usage: $0 start|stop FOLDER [CORES [NODES]]" >&2; exit 2; }
state=$(realpath -m "$2")
daemons=(node{9..1} slurmctld slurmdbd mariadbd munged)

stop() {
  local daemon pid
  for daemon in "${daemons[@]}"; do
    pid=$(cat "$state/$daemon.pid" 2>/dev/null) || continue
    kill "$pid" 2>/dev/null || true
    # most daemons remove the file themselves
    for _ in $(seq 100); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
    rm -f "$state/$daemon.pid"
  done
}

wait_for() { for _ in $(seq 300); do "$@" >/dev/null 2>&1 && return; sleep 0.2; done; echo "no answer within 60 seconds: $*" >&2; return 1; }

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

start() {
  local cores=$1 nodes=$2 host memory number
  host=$(hostname -s)
  memory=$(awk -v nodes="$nodes" '/MemTotal/ {print int($2 / 1024 / nodes * 0.9)}' /proc/meminfo)
  mkdir -p "$state"/{spool,save,run,log}
  chmod 755 "$state" "$state/run"

  head -c 1024 /dev/urandom > "$state/munge.key"
  chmod 600 "$state/munge.key"
  munged --force --key-file="$state/munge.key" --socket="$state/run/munge" --pid-file="$state/munged.pid" \
    --log-file="$state/log/munged" --seed-file="$state/munge.seed"

  mariadb-install-db --user=root --datadir="$state/database" >/dev/null 2>&1
  mariadbd --no-defaults --user=root --datadir="$state/database" --socket="$state/run/database" \
    --pid-file="$state/mariadbd.pid" --skip-networking >"$state/log/mariadbd" 2>&1 &
  wait_for mariadb --no-defaults --socket="$state/run/database" -e "select 1"
  mariadb --no-defaults --socket="$state/run/database" -e "create database slurm_acct_db; \
    create user slurm@localhost identified by 'slurm'; grant all on slurm_acct_db.* to slurm@localhost"

  local accounting control
  accounting=$(free_port) control=$(free_port)
  cat > "$state/slurmdbd.conf" <<END
AuthType=auth/munge
AuthInfo=socket=$state/run/munge
DbdHost=localhost
DbdPort=$accounting
SlurmUser=root
LogFile=$state/log/slurmdbd
PidFile=$state/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm_acct_db
END
  chmod 600 "$state/slurmdbd.conf"
  # a requeued job waits until its credential has expired, by default for two minutes
  cat > "$state/slurm.conf" <<END
ClusterName=here
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$control
AuthType=auth/munge
AuthInfo=socket=$state/run/munge,cred_expire=5
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$state/save
SlurmdSpoolDir=$state/spool/%n
SlurmctldPidFile=$state/slurmctld.pid
SlurmdPidFile=$state/%n.pid
SlurmctldLogFile=$state/log/slurmctld
SlurmdLogFile=$state/log/%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
JobRequeue=1
KillWait=20
SchedulerParameters=sched_interval=2,bf_interval=2
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=localhost
AccountingStoragePass=$state/run/munge
AccountingStoragePort=$accounting
JobAcctGatherType=jobacct_gather/linux
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP GraceTime=120
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=2
END
  for number in $(seq "$nodes"); do
    echo "NodeName=node$number NodeHostname=$host NodeAddr=127.0.0.1 Port=$(free_port) CPUs=$cores RealMemory=$memory State=UNKNOWN"
  done >> "$state/slurm.conf"
  export SLURM_CONF=$state/slurm.conf
  # slurmdbd looks for its configuration beside that of Slurm
  MYSQL_UNIX_PORT=$state/run/database slurmdbd
  wait_for sacctmgr --noheader list cluster
  sacctmgr --immediate --quiet add cluster here >/dev/null 2>&1 || true
  slurmctld
  for number in $(seq "$nodes"); do slurmd -N "node$number"; done
  wait_for sinfo --noheader
  wait_for bash -c "[[ \$(sinfo --noheader --Node --partition=main --states=idle --format=%N | wc -l) == $nodes ]]"
}

case $1 in
  start) trap 'stop' ERR; start "${3:-$(nproc)}" "${4:-1}" ;;
  stop) stop ;;
esac
