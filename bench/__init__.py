"""Speed, measured beside the peers that are installed: `python -m bench`, or `make bench`.

`--quick` takes under 90 seconds, `--only NAME` measures some of the cells, `--json` prints what
bench/results/latest.json gets. Peers: huey, litequeue and persist-queue from requirements/bench.txt;
beanstalkd when the program is installed; tarantool/queue when tarantool is installed and
TARANTOOL_QUEUE_PATH names a folder that holds the module (the folder with queue/init.lua in it).
"""
