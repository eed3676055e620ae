"""What a process that handles programs may still do: no network, no other program, no writing, next to no reading.

Two nets of the Linux kernel, both without privileges: Landlock for files (kernel 5.13 on), a seccomp filter for system
calls (x86-64 and aarch64). Where one is missing the rest still holds, and `Confinement` says so.

References:
    Landlock: Documentation/userspace-api/landlock.rst; constants of linux/landlock.h.
    seccomp: Documentation/userspace-api/seccomp_filter.rst; linux/seccomp.h, linux/filter.h, linux/audit.h.
"""

import ctypes
import errno
import glob
import json
import os
import platform
import resource
import struct
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

Level = Literal["compile", "gpu"]

_MAX_OPEN_FILES = 64  # of a compile worker
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 38, 22, 2
_LANDLOCK_CREATE, _LANDLOCK_ADD_RULE, _LANDLOCK_RESTRICT = 444, 445, 446  # the same number on every machine
_RULE_PATH_BENEATH = 1
_READ = 1 << 2 | 1 << 3  # READ_FILE, READ_DIR
_WRITE = 1 << 1 | 1 << 14  # WRITE_FILE, TRUNCATE
# execute, write, read, and making, removing and moving entries; each later version of Landlock adds a bit
_FIRST_RIGHTS = (1 << 13) - 1
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15  # of versions 2, 3 and 5
_NET = 1 << 0 | 1 << 1  # bind and connect TCP, of version 4
_SCOPES = 1 << 0 | 1 << 1  # abstract UNIX sockets, signals, of version 6

_CLONE_THREAD = 0x10000
_OPEN_FOR_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_AF_UNIX = 1

# x86-64 number, aarch64 number (None: the call does not exist there)
_ALWAYS_DENIED: dict[str, tuple[int | None, int | None]] = {
    "connect": (42, 203), "accept": (43, 202), "bind": (49, 200), "listen": (50, 201), "accept4": (288, 242),
    "execve": (59, 221), "execveat": (322, 281), "fork": (57, None), "vfork": (58, None),
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "process_madvise": (440, 440), "tkill": (200, 130), "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240), "pidfd_open": (434, 434), "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41),
    "chroot": (161, 51), "setns": (308, 268), "unshare": (272, 97), "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264), "bpf": (321, 280), "perf_event_open": (298, 241), "keyctl": (250, 219),
    "add_key": (248, 217), "request_key": (249, 218), "init_module": (175, 105), "finit_module": (313, 273),
    "delete_module": (176, 106), "kexec_load": (246, 104), "kexec_file_load": (320, 294), "reboot": (169, 142),
    "userfaultfd": (323, 282), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427), "personality": (135, 92), "acct": (163, 89), "settimeofday": (164, 170),
    "clock_settime": (227, 112), "adjtimex": (159, 171), "clock_adjtime": (305, 266), "iopl": (172, None),
    "ioperm": (173, None), "modify_ldt": (154, None), "syslog": (103, 116), "fanotify_init": (300, 262),
    "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431),
    "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442),
}  # fmt: skip
# Changes to files and their names that Landlock does not cover, and all of them where there is no Landlock.
_COMPILE_DENIED: dict[str, tuple[int | None, int | None]] = {
    "socketpair": (53, 199), "sendmsg": (46, 211), "recvmsg": (47, 212), "sendmmsg": (307, 269),
    "recvmmsg": (299, 243), "creat": (85, None), "mknod": (133, None), "mknodat": (259, 33), "link": (86, None),
    "linkat": (265, 37), "symlink": (88, None), "symlinkat": (266, 36), "rename": (82, None), "renameat": (264, 38),
    "renameat2": (316, 276), "unlink": (87, None), "unlinkat": (263, 35), "mkdir": (83, None), "mkdirat": (258, 34),
    "rmdir": (84, None), "truncate": (76, 45), "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53),
    "fchmodat2": (452, 452), "chown": (92, None), "fchown": (93, 55), "lchown": (94, None), "fchownat": (260, 54),
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "removexattr": (197, 14),
    "lremovexattr": (198, 15), "fremovexattr": (199, 16), "utime": (132, None), "utimes": (235, None),
    "futimesat": (261, None), "utimensat": (280, 88), "inotify_init": (253, None), "inotify_init1": (294, 26),
    "shmget": (29, 194), "shmat": (30, 196), "msgget": (68, 186), "semget": (64, 190), "mq_open": (240, 180),
}  # fmt: skip
# Calls whose arguments decide.
_SOCKET, _CLONE, _CLONE3, _OPENAT2 = (41, 198), (56, 220), (435, 435), (437, 437)
_OPEN, _OPENAT, _KILL, _TGKILL, _PRLIMIT = (2, None), (257, 56), (62, 129), (234, 131), (302, 261)
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # column above, AUDIT_ARCH_*
_X32 = 0x40000000  # x86-64 calls by their x32 numbers

_ALLOW, _ERRNO, _KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000
_LOAD, _JUMP_EQUAL, _JUMP_GREATER_EQUAL, _JUMP_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06


@dataclass(frozen=True)
class Confinement:
    """What is in force in a process; each net is `on` or says in words why it is not."""

    level: Level
    files: str  # "on (Landlock version N)"
    system_calls: str  # "on (seccomp)"
    limits: str  # "on": open files, file size, core dumps

    @property
    def complete(self) -> bool:
        """Whether nothing is missing."""
        return all(state.startswith("on") for state in (self.files, self.system_calls, self.limits))

    def describe(self) -> str:
        """One line for people."""
        return f"files {self.files}, system calls {self.system_calls}, limits {self.limits}"


def confine(level: Level, readable: Sequence[str] = (), writable: Sequence[str] = ()) -> Confinement:
    """Take away, for good, what this process does not need; call it before the first program is handled.

    Threads that exist already keep their rights, so call it while there is one thread. Everything to be imported or
    loaded must have been.

    Args:
        level: `compile`: no file but those under `readable` can be opened, none written; no socket, no process.
            `gpu`: files can be read, and written only where the driver needs it and under `writable`; sockets of this
            machine only, none connected; no process.
        readable: folders or files.
        writable: of level `gpu`: further folders or files.

    Returns:
        What is in force. A kernel that lacks a part is no error: the caller decides from the answer.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    limits = _limit(level)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        reason = f"off: no_new_privs: {os.strerror(ctypes.get_errno())}"
        return Confinement(level, reason, reason, limits)
    if level == "compile":
        files = _landlock(libc, True, [(path, _READ) for path in readable])
    else:
        devices = [*glob.glob("/dev/nvidia*"), "/dev/null", "/dev/zero", "/dev/shm"]
        files = _landlock(libc, False, [(path, _everything(15)) for path in [*devices, *writable]])
    return Confinement(level, files, _seccomp(libc, level), limits)


def probe(level: Level) -> Confinement:
    """What `confine` would achieve on this machine, tried in a child process; the caller stays as it is."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.write(writer, json.dumps(asdict(confine(level))).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader, "rb") as answer:
        data = answer.read()
    os.waitpid(child, 0)
    if not data:
        return Confinement(level, "off: the probe failed", "off: the probe failed", "off: the probe failed")
    return Confinement(**json.loads(data))


def _limit(level: Level) -> str:
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if level == "compile":
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
            resource.setrlimit(resource.RLIMIT_NOFILE, (_MAX_OPEN_FILES, _MAX_OPEN_FILES))
    except (OSError, ValueError) as error:
        return f"off: {error}"
    return "on"


def _everything(version: int) -> int:
    """All file rights that a version of Landlock knows."""
    later = ((2, _REFER), (3, _TRUNCATE), (5, _IOCTL_DEV))
    return _FIRST_RIGHTS | sum(right for first, right in later if version >= first)


def _landlock(libc: ctypes.CDLL, reading: bool, rules: Sequence[tuple[str, int]]) -> str:
    """Handle all file rights, reading too if `reading`, and allow what `rules` say; "on" or why not."""
    version = _call(libc, _LANDLOCK_CREATE, None, 0, 1)
    if version < 1:
        return f"off: this kernel offers no Landlock ({os.strerror(ctypes.get_errno())})"
    handled = _everything(version)
    if not reading:
        handled &= ~(_READ | _IOCTL_DEV)  # a driver loads its libraries and talks to its devices
    attributes = struct.pack("<Q", handled)
    if version >= 4:
        attributes += struct.pack("<Q", _NET)
    if version >= 6:
        attributes += struct.pack("<Q", _SCOPES)
    ruleset = _call(libc, _LANDLOCK_CREATE, attributes, len(attributes), 0)
    if ruleset < 0:
        return f"off: {os.strerror(ctypes.get_errno())}"
    try:
        for path, rights in rules:
            try:
                place = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except OSError:
                continue  # what is not there needs no right
            try:
                if not os.path.isdir(path):
                    rights &= 1 | _READ & ~(1 << 3) | _WRITE | _IOCTL_DEV
                rule = struct.pack("<Qi", rights & handled, place)
                if rights & handled and _call(libc, _LANDLOCK_ADD_RULE, ruleset, _RULE_PATH_BENEATH, rule, 0) != 0:
                    return f"off: {path}: {os.strerror(ctypes.get_errno())}"
            finally:
                os.close(place)
        if _call(libc, _LANDLOCK_RESTRICT, ruleset, 0) != 0:
            return f"off: {os.strerror(ctypes.get_errno())}"
    finally:
        os.close(ruleset)
    return f"on (Landlock version {version})"


def _call(libc: ctypes.CDLL, number: int, *arguments: bytes | int | None) -> int:
    """A system call by number; integers go as longs."""
    converted = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    libc.syscall.restype = ctypes.c_long
    return int(libc.syscall(ctypes.c_long(number), *converted))


def _seccomp(libc: ctypes.CDLL, level: Level) -> str:
    machine = platform.machine()
    if machine not in _MACHINES:
        return f"off: no table of system calls for {machine}"
    program = _filter(level, *_MACHINES[machine], os.getpid())
    code = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code))  # struct sock_fprog
    if libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, header, 0, 0) != 0:
        return f"off: {os.strerror(ctypes.get_errno())}"
    return "on (seccomp)"


def _filter(level: Level, column: int, machine: int, pid: int) -> bytes:
    """The classic BPF program: look at the call's number, then at one argument where that decides."""
    out: list[bytes] = []

    def emit(code: int, constant: int, if_true: int = 0, if_false: int = 0) -> None:
        out.append(struct.pack("<HBBI", code, if_true, if_false, constant & 0xFFFFFFFF))

    def deny(number: int | None, error: int = errno.EPERM) -> None:
        if number is not None:
            emit(_JUMP_EQUAL, number, 0, 1)
            emit(_RETURN, _ERRNO | error)

    def decide(number: int | None, argument: int, test: Callable[[], None]) -> None:
        """For one call, load the low half of an argument and let `test` (two instructions) return or fall through."""
        if number is None:
            return
        emit(_JUMP_EQUAL, number, 0, 4)
        emit(_LOAD, 16 + 8 * argument)
        test()
        emit(_RETURN, _ALLOW)

    def unless_equal(value: int) -> Callable[[], None]:
        def test() -> None:
            emit(_JUMP_EQUAL, value, 1, 0)
            emit(_RETURN, _ERRNO | errno.EPERM)

        return test

    def unless_bits(bits: int) -> Callable[[], None]:
        def test() -> None:
            emit(_JUMP_ANY_BIT, bits, 1, 0)
            emit(_RETURN, _ERRNO | errno.EPERM)

        return test

    def if_bits(bits: int) -> Callable[[], None]:
        def test() -> None:
            emit(_JUMP_ANY_BIT, bits, 0, 1)
            emit(_RETURN, _ERRNO | errno.EACCES)

        return test

    emit(_LOAD, 4)  # the machine that the call is of
    emit(_JUMP_EQUAL, machine, 1, 0)
    emit(_RETURN, _KILL_PROCESS)
    emit(_LOAD, 0)  # the call's number
    if column == 0:
        emit(_JUMP_GREATER_EQUAL, _X32, 0, 1)
        emit(_RETURN, _ERRNO | errno.ENOSYS)
    for numbers in [*_ALWAYS_DENIED.values(), *(_COMPILE_DENIED.values() if level == "compile" else ())]:
        deny(numbers[column])
    # Their arguments lie in memory, which a filter cannot read; the C library falls back to clone and openat.
    deny(_CLONE3[column], errno.ENOSYS)
    deny(_OPENAT2[column], errno.ENOSYS)
    decide(_CLONE[column], 0, unless_bits(_CLONE_THREAD))
    decide(_KILL[column], 0, unless_equal(pid))
    decide(_TGKILL[column], 0, unless_equal(pid))
    if level == "compile":
        deny(_SOCKET[column])
        decide(_OPEN[column], 1, if_bits(_OPEN_FOR_WRITING))
        decide(_OPENAT[column], 2, if_bits(_OPEN_FOR_WRITING))
        decide(_PRLIMIT[column], 0, unless_equal(0))
    else:
        decide(_SOCKET[column], 0, unless_equal(_AF_UNIX))
    emit(_RETURN, _ALLOW)
    return b"".join(out)
