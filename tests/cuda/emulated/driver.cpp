// A stand-in for the CUDA driver: device memory is memory of the host between inaccessible pages, and a module is a
// shared library of emulated kernels, named by "EMULATED:" and its path.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <map>
#include <mutex>
#include <string>
#include <sys/mman.h>

namespace {

struct Launch {
  unsigned grid[3], block[3];
  int order;
};
using Kernel = const char* (*)(void**, const Launch*);

struct Memory {
  char* mapped;
  size_t mapped_bytes, bytes;
};

enum { SUCCESS = 0, INVALID = 1, NO_MEMORY = 2, BAD_IMAGE = 200, NOT_FOUND = 500, FAULT = 719 };
constexpr size_t PAGE = 4096, ALIGNMENT = 16;
constexpr char CANARY = 0x5a;

std::string problem = "no error";
std::map<uint64_t, Memory> memories;
std::mutex lock;  // the emulator keeps its state in globals

int failed(int code, const std::string& what) {
  problem = what;
  return code;
}

size_t rounded(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

// what lies between the end of an allocation and the inaccessible page behind it
bool intact(uint64_t address, const Memory& memory) {
  const char* end = (const char*)address + memory.bytes;
  const char* page = memory.mapped + memory.mapped_bytes - PAGE;
  for (const char* p = end; p < page; p++)
    if (*p != CANARY) return false;
  return true;
}

}  // namespace

#define API extern "C" __attribute__((visibility("default"))) int

API cuInit(unsigned) { return SUCCESS; }
API cuDeviceGetCount(int* count) { return *count = 1, SUCCESS; }
API cuDeviceGet(int* device, int) { return *device = 0, SUCCESS; }
API cuDevicePrimaryCtxRetain(void** context, int) { return *context = (void*)1, SUCCESS; }
API cuCtxSetCurrent(void*) { return SUCCESS; }
API cuDeviceGetAttribute(int* value, int attribute, int) {
  *value = attribute == 75 ? 8 : 0;  // compute capability 8.0
  return SUCCESS;
}
API cuDeviceGetName(char* text, int size, int) { return snprintf(text, size_t(size), "emulated device"), SUCCESS; }
API cuGetErrorString(int, const char** text) { return *text = problem.c_str(), SUCCESS; }

// NVRTC asks for it where it finds a driver
API cuGetExportTable(const void** table, const void*) { return *table = nullptr, NOT_FOUND; }

API cuModuleLoadData(void** module, const char* image) {
  if (strncmp(image, "EMULATED:", 9) != 0) return failed(BAD_IMAGE, "not an emulated module");
  *module = dlopen(image + 9, RTLD_NOW | RTLD_LOCAL);
  return *module ? int(SUCCESS) : failed(BAD_IMAGE, dlerror());
}
API cuModuleGetFunction(void** function, void* module, const char* name) {
  *function = dlsym(module, (std::string(name) + "_emulated").c_str());
  return *function ? int(SUCCESS) : failed(NOT_FOUND, std::string("no kernel ") + name);
}

API cuMemAlloc_v2(uint64_t* address, size_t bytes) {
  size_t inner = rounded(bytes ? bytes : 1, PAGE);
  char* mapped = (char*)mmap(nullptr, inner + 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return failed(NO_MEMORY, "out of memory");
  mprotect(mapped, PAGE, PROT_NONE);
  mprotect(mapped + PAGE + inner, PAGE, PROT_NONE);
  memset(mapped + PAGE, CANARY, inner);
  char* start = mapped + PAGE + inner - rounded(bytes ? bytes : 1, ALIGNMENT);
  memset(start, 0xff, bytes);  // NaN
  *address = (uint64_t)start;
  std::lock_guard<std::mutex> hold(lock);
  memories[*address] = {mapped, inner + 2 * PAGE, bytes};
  return SUCCESS;
}
API cuMemFree_v2(uint64_t address) {
  std::lock_guard<std::mutex> hold(lock);
  auto found = memories.find(address);
  if (found == memories.end()) return failed(INVALID, "freed memory that was not allocated");
  munmap(found->second.mapped, found->second.mapped_bytes);
  memories.erase(found);
  return SUCCESS;
}
API cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t bytes, void*) {
  return memcpy((void*)to, from, bytes), SUCCESS;
}
API cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t bytes, void*) {
  return memcpy(to, (void*)from, bytes), SUCCESS;
}
API cuStreamSynchronize(void*) { return SUCCESS; }

API cuLaunchKernel(Kernel kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned, void*, void** arguments, void**) {
  if (!gx || !gy || !gz) return failed(INVALID, "a grid without blocks");
  const char* order = getenv("CORA_EMULATOR_ORDER");
  Launch launch{{gx, gy, gz}, {bx, by, bz}, order ? atoi(order) : 0};
  std::lock_guard<std::mutex> hold(lock);
  const char* wrong = kernel(arguments, &launch);
  if (wrong) return failed(FAULT, wrong);
  for (auto& entry : memories)
    if (!intact(entry.first, entry.second)) return failed(FAULT, "a kernel wrote past the end of an array");
  return SUCCESS;
}
