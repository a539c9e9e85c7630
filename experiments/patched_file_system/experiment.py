"""A locally patched ext4 against the stock one: where do their request logs differ?

The patch takes one thing away: when ext4 reads a block of an inode table, it reads the blocks around it ahead. ext4 is
compiled twice as a module of the exact clock's kernel, as it is and with the patch. In a module it needs names of its
own beside the ext4 that the kernel has built in; nothing else is changed. Then one load runs on the exact clock, where
computing takes no time and runs repeat to the nanosecond. What is compared are requests from mounting to unmounting:
before, the kernel reads its clock twice more for a module, 256 ns each, and the checker that runs afterwards reads as
much at once as its memory lies together.

* stock: on the ext4 of the kernel.
* module: on the module without the patch. Its log must be that of stock.
* patched: on the module with the patch.
* option: on the ext4 of the kernel, mounted with inode_readahead_blks=0, which switches off what the patch takes away.
  Its log must be that of patched.

The log of patched must be that of stock up to a first read in an inode table; then its requests must be the same in the
same order, but for reads in inode tables, and at other instants.
"""

import argparse
import gzip
import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet

from common.command import ROOT, CommandFailed, executable, keep, note

SCHEMA = "chronodisk.experiment.patched-file-system/1"
NAME = "patched-file-system"
DEVICE = "first-disk"
CAPACITY = "1GiB"
PATCH = Path(__file__).with_name("no-inode-readahead.patch")
#: Debian's package linux-source-6.1, from which the kernel was built as well.
SOURCE = Path("/usr/src/linux-source-6.1.tar.xz")
TIME_PATCH = ROOT / "crates" / "chronodisk-guest" / "kernel" / "time.patch"
#: How the module calls itself, its folders in /proc and /sys, and the cache of inodes, where the kernel has its own.
TYPE = "ext4local"
NAMES = ['"ext4"', '"ext3"', '"fs/ext4"', '"ext4_inode_cache"']
SECTOR_BYTES = 512
#: Of the files that mkfs puts on the device.
FOLDERS, FILES, FILE_BYTES_STEP = 24, 120, 37
LOAD = """
find /mnt -type f -links 1 > /dev/null
cat /mnt/7/* > /dev/null
cp -r /mnt/3 /mnt/copy
rm -r /mnt/5
sync
"""
#: Columns of a log that tell of this host and not of the guest.
HOSTS_COLUMNS = ["model_time_ns", "store_time_ns", "stolen"]


def run(call: list[str], cwd: Path | str | None = None) -> str:
    """Run a program that must succeed, and return what it printed."""
    done = subprocess.run(call, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, cwd=cwd)
    if done.returncode != 0:
        raise CommandFailed(f"{' '.join(call)} ended with status {done.returncode}:\n{done.stderr}{done.stdout}")
    return done.stdout


def prepare(tree: Path, source: Path) -> None:
    """Unpack the source that the kernel was built from, and configure it as the kernel says that it was."""
    note(f"preparing {source} in {tree}: a minute or two")
    unfinished = tree.with_suffix(".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    run(["tar", "--extract", "--file", str(source), "--strip-components=1", "--directory", str(unfinished)])
    run(["patch", "-p1", "--batch", "--forward", "--input", str(TIME_PATCH)], cwd=unfinished)
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory) / "config.gz"
        guest = [str(executable()), "run", "--clock", "exact", "--device", "null", "--fs", "none", "--host-writes"]
        run([*guest, "--output", f"{directory}/run", "--", "cp", "/proc/config.gz", str(copy)])
        (unfinished / ".config").write_bytes(gzip.decompress(copy.read_bytes()))
    for target in ("olddefconfig", "modules_prepare"):
        run(["make", "ARCH=um", target], cwd=unfinished)
    unfinished.rename(tree)


def write_changed(file: Path, text: str) -> None:
    """Write a file, unless it is so already: make(1) then has less to do."""
    if not file.exists() or file.read_text() != text:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def sources(tree: Path, patch: Path | None) -> dict[str, str]:
    """Give the files of ext4 as a module with names of its own, patched or not."""
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory) / "fs" / "ext4"
        shutil.copytree(tree / "fs" / "ext4", copy, ignore=lambda _, names: [n for n in names if n.endswith(".o")])
        if patch:
            run(["patch", "-p1", "--batch", "--forward", "--input", str(patch)], cwd=directory)
        texts = {file.name: file.read_text() for file in [*copy.glob("*.[ch]"), copy / "Makefile"]}
    for name in NAMES:
        new = name.replace("ext4", TYPE).replace("ext3", "ext3local")
        texts = {file: text.replace(name, new) if file.endswith(".c") else text for file, text in texts.items()}
    rules = re.sub(r"^(obj-\$\(CONFIG_EXT4_KUNIT|ext4-inode-test).*\n", "", texts["Makefile"], flags=re.M)
    rules = rules.replace("obj-$(CONFIG_EXT4_FS)", "obj-m").replace("ext4.o", f"{TYPE}.o")
    return texts | {"Makefile": re.sub(r"^ext4-", f"{TYPE}-", rules, flags=re.M)}


def module(tree: Path, folder: Path, patch: Path | None) -> Path:
    """Compile ext4 as a module, patched or not."""
    name = "patched" if patch else "plain"
    note(f"compiling ext4, {name}")
    work = folder / "ext4"
    for file, text in sources(tree, patch).items():
        write_changed(work / file, text)
    # The list of the kernel's symbols is made with a whole kernel only; what is missing shows when it is loaded.
    jobs = f"-j{os.cpu_count()}"
    run(["make", "ARCH=um", f"M={work}", "KBUILD_MODPOST_WARN=1", jobs, "modules"], cwd=tree)
    return Path(shutil.copy2(work / f"{TYPE}.ko", folder / f"{name}.ko"))


def write_files(folder: Path) -> None:
    """Make what mkfs puts on the device."""
    for number in range(FOLDERS):
        (folder / str(number)).mkdir(parents=True)
        for file in range(FILES):
            (folder / str(number) / str(file)).write_bytes(bytes([file]) * (1000 + file * FILE_BYTES_STEP))


def log_of(files: Path, mount_options: str, *options: str) -> list[dict[str, Any]]:
    """Run the load, and return the mounted file system's requests without what they took of this host."""
    with tempfile.TemporaryDirectory() as directory:
        output = Path(directory) / "run"
        call = [str(executable()), "run", "--clock", "exact", "--cpu", "zero", "--device", DEVICE]
        call += ["--capacity", CAPACITY, "--start-time", "1700000000", "--drop-caches", "--fs", "ext4", "--check"]
        call += ["--mkfs-options", f"-d {files}", "--mount-options", mount_options, "--output", str(output)]
        run([*call, *options, "--", "sh", "-ec", LOAD])
        result = json.loads((output / "result.json").read_text())
        [rep] = result["reps"]
        rows: list[dict[str, Any]] = (
            parquet.read_table(output / rep["log_file"]).drop_columns(HOSTS_COLUMNS).to_pylist()
        )
    phases = {phase["name"]: phase for phase in rep["phases"]}
    begin, end = phases["mount"]["start_ns"], phases["unmount"]["end_ns"]
    return [row for row in rows if begin <= row["arrival_ns"] < end]


def inode_tables() -> list[tuple[int, int]]:
    """Where inode tables are on such a device, in sectors: as mke2fs lays them out, whatever it is that it fills."""
    with tempfile.TemporaryDirectory() as directory:
        image = Path(directory) / "image"
        with image.open("wb") as file:
            file.truncate(1 << 30)
        run(["mkfs.ext4", "-q", "-F", str(image)])
        text = run(["dumpe2fs", str(image)])
    size = re.search(r"^Block size:\s+(\d+)", text, re.M)
    assert size, text
    sectors = int(size[1]) // SECTOR_BYTES
    found = re.findall(r"Inode table at (\d+)-(\d+)", text)
    return [(int(first) * sectors, (int(last) + 1) * sectors) for first, last in found]


def compare(stock: list[dict[str, Any]], patched: list[dict[str, Any]]) -> dict[str, Any]:
    """Tell where two logs differ."""
    tables = inode_tables()

    def read_of_table(row: dict[str, Any]) -> bool:
        return row["op"] == "read" and any(first <= row["lba_sectors"] < end for first, end in tables)

    def rest(log: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
        return [(row["op"], row["lba_sectors"], row["len_sectors"]) for row in log if not read_of_table(row)]

    pairs = zip(stock, patched, strict=False)
    same = next((index for index, (one, other) in enumerate(pairs) if one != other), min(len(stock), len(patched)))
    first = [log[same] for log in (stock, patched) if same < len(log)]
    return {
        "requests": [len(stock), len(patched)],
        "same_to_the_nanosecond_before_request": same,
        "first_difference_is_of_a_read_of_an_inode_table": any(read_of_table(row) for row in first),
        "reads_of_inode_tables": [sum(map(read_of_table, log)) for log in (stock, patched)],
        "other_requests": [len(rest(log)) for log in (stock, patched)],
        "other_requests_are_the_same_in_the_same_order": rest(stock) == rest(patched),
    }


def main() -> None:
    """Compile, run and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--patch", type=Path, default=PATCH, help="another patch of ext4: its logs are compared only")
    parser.add_argument("--source", type=Path, default=SOURCE, help="archive of the kernel's source")
    parser.add_argument("--folder", type=Path, default=ROOT / "target" / NAME, help="for source and modules, kept")
    chosen = parser.parse_args()
    run([str(executable()), "kernel", "path"])
    folder: Path = chosen.folder.absolute()
    tree = folder / "source"
    if not tree.is_dir():
        prepare(tree, chosen.source)
    plain = module(tree, folder, None)
    changed = module(tree, folder, chosen.patch.absolute())
    files = folder / "files"
    shutil.rmtree(files, ignore_errors=True)
    write_files(files)
    logs = {
        "stock": log_of(files, "noatime"),
        "module": log_of(files, "noatime", "--module", str(plain), "--mount-type", TYPE),
        "patched": log_of(files, "noatime", "--module", str(changed), "--mount-type", TYPE),
        "option": log_of(files, "noatime,inode_readahead_blks=0"),
    }
    result = {
        "schema": SCHEMA,
        "patch": chosen.patch.name,
        "device": DEVICE,
        "module_without_patch_is_stock": logs["module"] == logs["stock"],
        "patched_is_option": logs["patched"] == logs["option"],
        "patched_against_stock": compare(logs["stock"], logs["patched"]),
    }
    print(json.dumps(result, indent=2))
    against: dict[str, Any] = result["patched_against_stock"]
    fine = result["module_without_patch_is_stock"]
    if chosen.patch == PATCH:
        keep(NAME, result)
        fine = fine and result["patched_is_option"] and against["first_difference_is_of_a_read_of_an_inode_table"]
        fine = fine and against["other_requests_are_the_same_in_the_same_order"]
    if not fine:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
