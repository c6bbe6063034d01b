// CUDA's execution model on a CPU: one fiber for each thread of a block, one block after the other.
//
// A fiber runs until it waits: at a barrier, for the other lanes of a warp operation, or at its end. Which fiber runs
// next is the *order*; a program without races gives the same result in each:
//
//   0  threads in turn, first to last            1  last to first
//   2  one warp as far as it gets, then the next  3  the same from the last warp
//   n  threads in turn from a place that changes every round, by seed n
#pragma once
#include <csetjmp>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <type_traits>
#include <utility>
#include <vector>

struct uint3 { unsigned x, y, z; };
struct dim3 { unsigned x, y, z; };
// defined without `static`: they change while a fiber sleeps, and the compiler must not assume otherwise
uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;
constexpr int warpSize = 32;

// static shared arrays lie in one section, which is poisoned before each block
#define __shared__ static __attribute__((section("emulated_shared")))
extern "C" char __start_emulated_shared[] __attribute__((weak)), __stop_emulated_shared[] __attribute__((weak));

namespace emulator {

struct Launch {
  unsigned grid[3], block[3];
  int order;
};

enum State : uint8_t { READY, AT_BARRIER, AT_WARP, DONE };
enum Operation : uint8_t { SHUFFLE, VOTE, MEET };

struct Copy {
  void* to;
  const void* from;
  size_t bytes, zeros;  // of the source; behind them
  unsigned group;
};

struct Fiber {
  void* stack_pointer;
  char* stack;
  State state;
  uint3 index;
  int site;             // the line of the barrier it waits at
  Operation operation;  // the warp operation it waits in, with its operands
  uint32_t mask;
  uint64_t given, taken;
  uint8_t source;
  std::vector<Copy> copies;  // asynchronous ones that it has not waited for
  unsigned groups;           // of copies, that it has closed
};

constexpr size_t STACK_BYTES = 64 * 1024;
constexpr unsigned MAX_THREADS = 1024;

static std::vector<Fiber> fibers;
static Fiber* current;
static void* scheduler_stack;
static unsigned count, alive, at_barrier;
static std::vector<uint32_t> live_lanes, waiting_lanes;  // of each warp
static char message[256];
static int order;
static void (*thread_body)(void*);
static void* thread_argument;

// saves the callee-saved registers on this stack, continues on another
extern "C" void emulator_switch(void** save, void* to);
__asm__(
    ".text\n.type emulator_switch,@function\nemulator_switch:\n"
    " push %rbp\n push %rbx\n push %r12\n push %r13\n push %r14\n push %r15\n"
    " mov %rsp,(%rdi)\n mov %rsi,%rsp\n"
    " pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbx\n pop %rbp\n ret\n");

inline unsigned number(const Fiber* fiber) { return unsigned(fiber - fibers.data()); }

__attribute__((noinline)) inline void sleep() {
  Fiber* me = current;
  emulator_switch(&me->stack_pointer, scheduler_stack);
  __asm__ volatile("" ::: "memory");
}

inline void run(Fiber& fiber) {
  current = &fiber;
  threadIdx = fiber.index;
  emulator_switch(&scheduler_stack, fiber.stack_pointer);
  __asm__ volatile("" ::: "memory");
}

inline void describe(const char* what, uint3 thread) {
  if (!message[0])
    snprintf(message, sizeof message, "%s: block (%u,%u,%u) thread (%u,%u,%u)", what, blockIdx.x, blockIdx.y,
             blockIdx.z, thread.x, thread.y, thread.z);
}

inline void fail(const char* what) {
  describe(what, current->index);
  current->state = DONE;
  sleep();
}

// barriers: all threads that have not ended must be at the same one

inline void open_barrier() {
  if (!at_barrier || at_barrier != alive) return;
  int site = -1;
  for (auto& fiber : fibers)
    if (fiber.state == AT_BARRIER) {
      if (site >= 0 && fiber.site != site) describe("threads meet at different barriers", fiber.index);
      site = fiber.site;
    }
  for (auto& fiber : fibers)
    if (fiber.state == AT_BARRIER) fiber.state = READY;
  at_barrier = 0;
}

inline void barrier(int site) {
  current->state = AT_BARRIER;
  current->site = site;
  ++at_barrier;
  open_barrier();
  if (current->state == AT_BARRIER) sleep();
}

// warp operations: all live lanes of the mask arrive with the same mask and operation, then exchange values

inline void exchange(unsigned warp, uint32_t lanes) {
  Fiber* lane = &fibers[warp * 32];
  uint64_t votes = 0;
  for (int i = 0; i < 32; i++)
    if (lanes >> i & 1 && lane[i].operation == VOTE && lane[i].given) votes |= 1ull << i;
  for (int i = 0; i < 32; i++)
    if (lanes >> i & 1) {
      bool there = lanes >> lane[i].source & 1;  // a lane that takes no part has no value
      lane[i].taken = lane[i].operation == SHUFFLE ? (there ? lane[lane[i].source].given : ~0ull) : votes;
    }
  for (int i = 0; i < 32; i++)
    if (lanes >> i & 1) lane[i].state = READY;
  waiting_lanes[warp] &= ~lanes;
}

inline uint64_t warp_operation(uint32_t mask, Operation operation, uint64_t given, unsigned source) {
  unsigned warp = number(current) / 32, own = number(current) % 32;
  if (!(mask >> own & 1)) fail("a lane is not in the mask of its own warp operation");
  uint32_t lanes = mask & live_lanes[warp];
  current->operation = operation;
  current->given = given;
  current->source = uint8_t(source);
  current->mask = lanes;
  current->state = AT_WARP;
  waiting_lanes[warp] |= 1u << own;
  if ((waiting_lanes[warp] & lanes) == lanes) {
    for (int i = 0; i < 32; i++) {
      const Fiber& lane = fibers[warp * 32 + i];
      if (lanes >> i & 1 && (lane.mask != lanes || lane.operation != operation))
        fail("lanes of a warp meet in different operations");
    }
    exchange(warp, lanes);
  } else {
    sleep();
  }
  return current->taken;
}

template <class T> uint64_t bits_of(T value) {
  static_assert(sizeof(T) <= 8, "shuffled values have at most 8 bytes");
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof value);
  return bits;
}
template <class T> T from_bits(uint64_t bits) {
  T value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

// asynchronous copies: the hardware may make them at once, or as late as the thread waits for them

inline void finish(const Copy& copy) {
  memcpy(copy.to, copy.from, copy.bytes);
  memset((char*)copy.to + copy.bytes, 0, copy.zeros);
}
inline void finish_copies() {
  for (const Copy& copy : current->copies) finish(copy);
  current->copies.clear();
}
// those in all groups but the newest ones
inline void finish_groups_but(unsigned newest) {
  std::vector<Copy> left;
  for (const Copy& copy : current->copies) {
    if (copy.group + newest < current->groups)
      finish(copy);
    else
      left.push_back(copy);
  }
  current->copies = left;
}

inline void copy_async(void* to, const void* from, size_t bytes, size_t width) {
  if (bytes < 1 || bytes > width) fail("an asynchronous copy of too few or too many bytes");
  if ((uint64_t)to % width || (uint64_t)from % width) fail("an asynchronous copy that is not aligned");
  char first = *(const char*)from, last = ((const char*)from)[bytes - 1];  // a wrong address shows here
  __asm__ volatile("" ::"r"(first), "r"(last));
  current->copies.push_back({to, from, bytes, width - bytes, current->groups});
  if (order % 2) finish_copies();
}

// blocks

inline void thread_start() {
  thread_body(thread_argument);
  if (!current->copies.empty()) fail("an asynchronous copy that its thread does not wait for");
  current->state = DONE;
  --alive;
  live_lanes[number(current) / 32] &= ~(1u << number(current) % 32);
  open_barrier();
  sleep();
  __builtin_trap();
}

inline void prepare_block(const Launch& launch) {
  alive = count;
  at_barrier = 0;
  if (__start_emulated_shared)  // all ones are NaN: reading what was not written shows
    memset(__start_emulated_shared, 0xff, __stop_emulated_shared - __start_emulated_shared);
  for (unsigned i = 0; i < count; i++) {
    Fiber& fiber = fibers[i];
    void** top = (void**)(fiber.stack + STACK_BYTES);
    top[-1] = nullptr;
    top[-2] = (void*)thread_start;
    for (int k = 3; k <= 8; k++) top[-k] = nullptr;
    fiber.stack_pointer = top - 8;
    fiber.state = READY;
    fiber.copies.clear();
    fiber.groups = 0;
    fiber.index = {i % launch.block[0], i / launch.block[0] % launch.block[1],
                   i / (launch.block[0] * launch.block[1])};
  }
  for (unsigned warp = 0; warp < live_lanes.size(); warp++) {
    unsigned lanes = count - warp * 32;
    live_lanes[warp] = lanes >= 32 ? ~0u : (1u << lanes) - 1;
    waiting_lanes[warp] = 0;
  }
}

inline bool run_ready(unsigned i) {
  if (message[0] || fibers[i].state != READY) return false;
  run(fibers[i]);
  return true;
}

inline bool run_warp(unsigned warp) {
  bool any = false, again = true;
  while (again && !message[0]) {
    again = false;
    for (unsigned i = warp * 32; i < warp * 32 + 32 && i < count; i++) again |= run_ready(i);
    any |= again;
  }
  return any;
}

inline bool run_round(int order, uint32_t& turn) {
  bool moved = false;
  unsigned warps = unsigned(live_lanes.size());
  turn = turn * 1664525u + 1013904223u;
  if (order == 2 || order == 3)
    for (unsigned w = 0; w < warps; w++) moved |= run_warp(order == 2 ? w : warps - 1 - w);
  else
    for (unsigned k = 0; k < count; k++)
      moved |= run_ready(order == 0 ? k : order == 1 ? count - 1 - k : (k + (turn >> 8)) % count);
  return moved;
}

inline void run_block(const Launch& launch) {
  prepare_block(launch);
  uint32_t turn = unsigned(launch.order) * 2654435761u;
  while (alive && !message[0]) {
    if (run_round(launch.order, turn)) continue;
    for (auto& fiber : fibers)
      if (fiber.state == AT_BARRIER || fiber.state == AT_WARP) {
        describe(fiber.state == AT_BARRIER ? "deadlock: a barrier that not all threads reach"
                                           : "deadlock: a warp operation that not all lanes reach",
                 fiber.index);
        break;
      }
  }
}

// launches

static sigjmp_buf fault_return;
inline void on_fault(int, siginfo_t* info, void*) {
  char text[64];
  snprintf(text, sizeof text, "memory fault at %p", info->si_addr);
  describe(text, threadIdx);
  siglongjmp(fault_return, 1);
}

inline void prepare_fibers(unsigned threads) {
  count = threads;
  while (fibers.size() < threads) {
    Fiber fiber{};
    fiber.stack = (char*)mmap(nullptr, STACK_BYTES, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    fibers.push_back(fiber);
  }
  while (fibers.size() > threads) {
    munmap(fibers.back().stack, STACK_BYTES);
    fibers.pop_back();
  }
  live_lanes.assign((threads + 31) / 32, 0);
  waiting_lanes = live_lanes;
}

inline const char* run_grid(const Launch& launch) {
  message[0] = 0;
  order = launch.order;
  unsigned threads = launch.block[0] * launch.block[1] * launch.block[2];
  if (!threads || threads > MAX_THREADS) return "a block must have 1 to 1024 threads";
  prepare_fibers(threads);
  blockDim = {launch.block[0], launch.block[1], launch.block[2]};
  gridDim = {launch.grid[0], launch.grid[1], launch.grid[2]};
  struct sigaction action {}, segv, bus;
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigaction(SIGSEGV, &action, &segv);
  sigaction(SIGBUS, &action, &bus);
  if (!sigsetjmp(fault_return, 1))
    for (unsigned z = 0; z < launch.grid[2]; z++)
      for (unsigned y = 0; y < launch.grid[1]; y++)
        for (unsigned x = 0; x < launch.grid[0] && !message[0]; x++) {
          blockIdx = {x, y, z};
          run_block(launch);
        }
  sigaction(SIGSEGV, &segv, nullptr);
  sigaction(SIGBUS, &bus, nullptr);
  return message[0] ? message : nullptr;
}

template <class... A, size_t... I>
const char* call(void (*kernel)(A...), void** arguments, const Launch& launch, std::index_sequence<I...>) {
  auto body = [&] { kernel(*(std::decay_t<A>*)arguments[I]...); };
  thread_body = [](void* argument) { (*(decltype(body)*)argument)(); };
  thread_argument = &body;
  return run_grid(launch);
}

}  // namespace emulator

// the entry point of a kernel: null, or what went wrong
#define EMULATED_KERNEL(name)                                                             \
  template <class... A> const char* name##_call(void (*k)(A...), void** p, const emulator::Launch& l) { \
    return emulator::call(k, p, l, std::index_sequence_for<A...>{});                      \
  }                                                                                       \
  extern "C" const char* name##_emulated(void** p, const emulator::Launch* l) { return name##_call(name, p, *l); }
