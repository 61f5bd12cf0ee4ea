"""What a disk needs for a merge's bytes when nothing else is done: disk_alone.py OUTPUT BYTES [INPUT …]

Reads every INPUT and writes BYTES to the new file OUTPUT/file at the same time, both past the page cache (O_DIRECT), two readers and
two writers with a MiB each, then waits until all is on the disk. Nobody who reads and writes as many bytes can be faster.
"""

import concurrent.futures
import mmap
import os
import pathlib
import sys

STEP = 1 << 20
THREADS = 2


def read(descriptor, size, thread):
    buffer = mmap.mmap(-1, STEP)  # begins at a page, as O_DIRECT asks for
    for position in range(thread * STEP, size, THREADS * STEP):
        os.preadv(descriptor, [buffer], position)


def write(descriptor, size, thread):
    buffer = mmap.mmap(-1, STEP)
    buffer.write(os.urandom(STEP))
    for position in range(thread * STEP, size, THREADS * STEP):
        os.pwrite(descriptor, buffer, position)


def read_all(inputs):
    for path in inputs:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
        with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(lambda thread, of=descriptor: read(of, os.fstat(of).st_size, thread), range(THREADS)))
        os.close(descriptor)


def write_all(path, size):
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_DIRECT, 0o644)
    with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda thread: write(descriptor, size, thread), range(THREADS)))
    os.fsync(descriptor)
    os.close(descriptor)


def main(output, size, *inputs):
    pathlib.Path(output).mkdir()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(read_all, inputs), pool.submit(write_all, pathlib.Path(output) / "file", int(size))]:
            done.result()


if __name__ == "__main__":
    main(*sys.argv[1:])
