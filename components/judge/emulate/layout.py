"""Numbers that the front end, the core and the machine share: record layouts, windows, opcodes, fault codes.

Every record is a row of int64 words; the constants are byte offsets (word index * 8), as the core adds them to raw
addresses. Registers are lane-contiguous: 32 x 4 bytes (b16, b32, f32), 32 x 8 bytes (b64, f64), 4 bytes (a predicate,
one bit a lane).
"""

LANES = 32
FULL = 0xFFFFFFFF

# one instruction: INS_WORDS int64 words
I_OP, I_D, I_A, I_B, I_C, I_IMM, I_GUARD, I_GXOR, I_LINE = (8 * k for k in range(9))
I_SIZE, I_VEC, I_SPACE, I_KIND, I_FLAGS = (8 * k for k in range(9, 14))
I_V0, I_V1, I_V2, I_V3 = (8 * k for k in range(14, 18))
I_ROUND = 8 * 18  # of a load: see rounds.py; level, first << 2, unroll << 3, rows of the block << ROUND_BODY
ROUND_BODY = 8
INS_WORDS = 19
INS_BYTES = 8 * INS_WORDS
# a row of operands (after the code, never run): up to INS_WORDS register offsets
ATOMIC_PARTS = 8  # of a vector atomic: sources, then targets
MMA_D, MMA_A, MMA_B, MMA_C = 0, 4, 8, 10
MMA_KINDS = ("f16", "bf16", "tf32", "f64", "s8", "u8")  # of the factors

# control and memory opcodes; vector operations start at FIRST_VECTOR_OP
(OP_BRA, OP_EXIT, OP_TRAP, OP_BAR, OP_LD, OP_ST, OP_ATOM, OP_SHFL, OP_VOTE, OP_WARPSYNC, OP_REDUX, OP_MATCH) = range(12)
(OP_ACTIVE, OP_FENCE, OP_NOP, OP_BRX, OP_COPYGROUP, OP_ELECT, OP_MMA, OP_LDMATRIX) = range(12, 20)
FIRST_VECTOR_OP = 32

# state spaces of OP_LD / OP_ST / OP_ATOM
SP_GLOBAL, SP_SHARED, SP_LOCAL, SP_CONST, SP_GENERIC = range(5)
# flags of memory instructions
F_ADDR32, F_STRONG, F_NOCACHE = 1, 2, 4  # 32-bit address register; volatile/relaxed/acquire/release; bypasses L1
F_ASYNC = 8  # the shared side of a cp.async
F_STREAM = 16  # a load with an evict-first hint
# flags of synchronising instructions
F_NEGATE, F_ARRIVE = 1, 2  # a negated predicate; bar.arrive does not wait
# immediates of OP_COPYGROUP; 0 and more: cp.async.wait_group
COPY_COMMIT, COPY_WAIT_ALL = -1, -2

# virtual addresses: buffer k begins at (k + 1) * 2^40 + 2^39, so that an overrun of up to 512 GB stays in its window
WINDOW_BITS = 40
WINDOW_BASE = 1 << 39
SHARED_WINDOW = 0x7000 << WINDOW_BITS
LOCAL_WINDOW = 0x7100 << WINDOW_BITS

# one buffer: BUF_WORDS int64 words
(B_BASE, B_LEN, B_HOST, B_WRITABLE, B_INIT, B_WSHADOW, B_RSHADOW, B_SEEN) = (8 * k for k in range(8))
BUF_WORDS = 8

# one warp: pc int32[32], barrier id int32[32], barrier count int32[32], predicate of a barrier reduction, masks
W_PC, W_BARID, W_BARCOUNT = 0, 128, 256
(W_ALIVE, W_BAR, W_WAIT, W_LOW, W_SYNC, W_REGS, W_LOADS, W_ISSUED, W_BARPC, W_YIELDED) = (
    384 + 8 * k for k in range(10)
)
# what its slowest chain waits for (chain.py): rounds of loads, those that missed L1 and those that did as evict-first,
# lines, missed sectors, rounds and wavefronts of shared memory, instructions, warp primitives, barriers; then what
# tells rounds apart
W_CHAIN, CHAIN_WORDS = 464, 10
(W_HITS, W_MISSES, W_STREAMS, W_LINES, W_SECTORS, W_SHARED, W_BANKS, W_STEPS, W_SYNCS, W_MEETINGS) = (
    W_CHAIN + 8 * k for k in range(CHAIN_WORDS)
)
W_MISSING, W_PHASE, W_LOOPED = (W_CHAIN + 8 * k for k in range(CHAIN_WORDS, CHAIN_WORDS + 3))
WARP_BYTES = 576

# the machine's state: pointers, sizes, counters, the fault
(S_CODE, S_CODE_LEN, S_BUFFERS, S_BUFFER_COUNT, S_SHARED_BUFFER, S_SHARED_LEN) = (8 * k for k in range(6))
(S_LOCAL, S_LOCAL_LEN, S_WARPS, S_WARP_COUNT, S_THREADS, S_BX) = (8 * k for k in range(6, 12))
(S_BY, S_BZ, S_GX, S_GY, S_GZ, S_BLOCKS) = (8 * k for k in range(12, 18))
(S_SM, S_L1, S_L1_TICK, S_SCRATCH, S_SEQ, S_BUDGET_END) = (8 * k for k in range(18, 24))
(S_BLOCK0, S_EPOCH, S_LAUNCH0, S_FENCED, S_CTAID_X, S_CTAID_Y) = (8 * k for k in range(24, 30))
(S_CTAID_Z, S_SMS, S_HASH, S_HASH_GEN, S_FAULT, S_FAULT_LINE) = (8 * k for k in range(30, 36))
(S_FAULT_LANE, S_FAULT_WARP, S_FAULT_BUFFER, S_FAULT_ADDR, S_FAULT_SIZE, S_FAULT_BX) = (8 * k for k in range(36, 42))
(S_FAULT_BY, S_FAULT_BZ, S_LANE_INSTRUCTIONS, S_LOADS, S_LOAD_SECTORS, S_LOAD_BYTES) = (8 * k for k in range(42, 48))
(S_STORES, S_STORE_SECTORS, S_STORE_BYTES, S_ATOMICS, S_ATOMIC_SECTORS, S_WAVEFRONTS) = (8 * k for k in range(48, 54))
(S_L1_MISS, S_COLD, S_SHARED_REQUESTS, S_SHARED_WAVEFRONTS, S_BRANCHES, S_DIVERGED) = (8 * k for k in range(54, 60))
(S_BARRIERS, S_WARP_SYNCS, S_MAX_WARP_LOADS, S_SUM_WARP_LOADS, S_WARPS_RUN, S_MAX_WARP_ISSUED) = (
    8 * k for k in range(60, 66)
)
(S_MAX_BLOCK_ISSUED, S_LOCAL_REQUESTS, S_ATOMIC_LANES, S_COPIES, S_COPY_COUNT, S_GROUPS) = (
    8 * k for k in range(66, 72)
)
S_ARRIVED = 8 * 72  # 16 words: threads that bar.arrive counted at each barrier
(S_SM_LOADS, S_BLOCK_ISSUED, S_BLOCK_LINES, S_BLOCK_SECTORS, S_LONGEST) = (8 * k for k in range(88, 93))
S_CHAIN_SUM, S_CHAIN_MAX = 8 * 93, 8 * (93 + CHAIN_WORDS)
S_ORDER = 8 * (93 + 2 * CHAIN_WORDS)  # see sync.order_named
S_STREAM_COLD, S_STREAM_MISS = (8 * (k + 2 * CHAIN_WORDS) for k in (94, 95))  # of loads with an evict-first hint
STATE_WORDS = 96 + 2 * CHAIN_WORDS
SM_WORDS = 4  # what a multiprocessor got: instructions, lines and wavefronts, sectors to and from L2, blocks
SM_BYTES = 8 * SM_WORDS

# a copy (cp.async) that nobody has waited for: its shared word, thread and group
COPY_BYTES = 24
PENDING = 1 << 51  # the "sequence number" of the writer of such a word

# named barriers: ORDER_ROW words a warp (what it may take as done, of each warp; then the latest of them), then when
# each warp arrived without waiting, 16 barriers x 32 warps
ORDER_ROW = LANES + 1
ORDER_MET = 8 * LANES * ORDER_ROW
ORDER_WORDS = LANES * ORDER_ROW + 16 * LANES

# faults
(FAULT_NONE, FAULT_OOB, FAULT_MISALIGNED, FAULT_UNINIT, FAULT_READONLY, FAULT_RACE_WAW, FAULT_RACE_RAW) = range(7)
(FAULT_RACE_WAR, FAULT_RACE_ATOMIC, FAULT_MASK, FAULT_BUDGET, FAULT_DEADLOCK, FAULT_TRAP, FAULT_LOCAL) = range(7, 14)
FAULT_INTERNAL, FAULT_BRX, FAULT_ASYNC, FAULT_WARP = 14, 15, 16, 17

# scratch: 32 addresses, then (line, sector mask) pairs of one request, then bank counters, then matrices as f64
SCRATCH_LINES = 512
SCRATCH_BANKS = SCRATCH_LINES + 128 * 16
SCRATCH_A = SCRATCH_BANKS + 32 * 8 * 9  # 16 x 32
SCRATCH_B = SCRATCH_A + 16 * 32 * 8  # 32 x 8
SCRATCH_C = SCRATCH_B + 32 * 8 * 8  # 16 x 8
SCRATCH_BYTES = SCRATCH_C + 16 * 8 * 8
HASH_SLOTS = 256  # open addressing, 3 words a slot: line, generation, index into the line list

# an approximate L1: L1_SETS sets of L1_WAYS 128-byte lines with one bit a 32-byte sector (256 KB, as on sm_80/90/100)
L1_SETS, L1_WAYS = 256, 8
L1_SET_BYTES = L1_WAYS * 8 * 3  # tag, sector mask, last use
