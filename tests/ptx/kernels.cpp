// SPDX-License-Identifier: MIT
//
// Kernels as nvcc's host code registers and launches them, and what a device would not launch.
//   PTX_FILES       a list of the files with their PTX, instead of the build's
//   PTX_ROW_BLOCK   threads of a row kernel, instead of those that it asks for: small tests would run one warp only
//   PTX_COVERAGE    a file to which is added which lines of PTX ran
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <regex>
#include <stdexcept>

#include "tests/ptx/faults.h"
#include "tests/ptx/launch.h"
#include "tests/ptx/memory.h"
#include "tests/ptx/program.h"
#include "tests/ptx/streams.h"

namespace {

struct Kernel {
  std::string name;
  const ptx::Module* module = nullptr;
  const ptx::Function* function = nullptr;  // null until it is launched
  int registers = 0;                        // 0: not known
};

/// Needs the device's mutex.
struct Kernels {
  std::map<const void*, Kernel> by_host_function;
  std::map<std::string, std::string> files;                     // by kernel
  std::map<std::string, std::unique_ptr<ptx::Module>> modules;  // by file
  std::map<std::string, int> registers;                         // by kernel
};
Kernels& kernels() {
  static auto& all = *new Kernels;
  return all;
}

/// Which file each kernel is in.
void index_files() {
  const char* const list = std::getenv("PTX_FILES");
  std::ifstream paths(list ? list : AB_PTX_FILES);
  for (std::string path; std::getline(paths, path);) {
    std::ifstream file(path);
    constexpr std::string_view entry = ".entry ";
    for (std::string line; std::getline(file, line);)
      if (const auto at = line.find(entry); at != std::string::npos)
        kernels().files[line.substr(at + entry.size(), line.find('(') - at - entry.size())] = path;
  }
}

/// What `cuobjdump --dump-resource-usage` said of the library; nothing where there is no cuobjdump.
void read_registers() {
  std::ifstream file(AB_PTX_REGISTERS);
  const std::regex name(R"(Function (\S+):)"), count(R"(REG:(\d+))");
  std::string kernel;
  for (std::string line; std::getline(file, line);) {
    std::smatch match;
    if (std::regex_search(line, match, name)) kernel = match[1];
    else if (std::regex_search(line, match, count)) kernels().registers[kernel] = std::stoi(match[1]);
  }
}

void load(Kernel& kernel) {
  const std::lock_guard lock(ptx::device_mutex());
  if (kernel.function) return;
  if (kernels().files.empty()) index_files(), read_registers();
  const auto file = kernels().files.find(kernel.name);
  if (file == kernels().files.end()) ptx::give_up("there is no PTX of " + kernel.name);
  std::unique_ptr<ptx::Module>& module = kernels().modules[file->second];
  if (!module) {
    try {
      module = ptx::parse(file->second);
    } catch (const std::runtime_error& e) {
      ptx::give_up(e.what());
    }
    for (const auto& array : module->constants) ptx::device_memory().add_constants(*array);
  }
  kernel.module = module.get();
  kernel.registers = kernels().registers[kernel.name];
  kernel.function = module->find(kernel.name);
}

struct Configuration {
  dim3 grid, block;
  std::size_t shared = 0;
  cudaStream_t stream = nullptr;
};
thread_local std::vector<Configuration> configurations;  // between <<<…>>> and the launch

/// Why a device would not launch it, or null; by the limits of compute capability 9.0.
const char* refusal(const Kernel& kernel, const Configuration& c, cudaError_t& status) {
  const std::uint64_t threads = std::uint64_t{c.block.x} * c.block.y * c.block.z;
  status = cudaErrorInvalidConfiguration;
  const dim3& g = c.grid;
  if (g.x == 0 || g.y == 0 || g.z == 0 || g.x > 0x7fffffff || g.y > 65535 || g.z > 65535) return "its grid";
  if (threads == 0 || threads > 1024 || c.block.z > 64) return "its block";
  status = cudaErrorInvalidValue;
  if (threads > static_cast<std::uint64_t>(kernel.function->max_threads)) return "more threads than its launch bounds";
  if (kernel.function->shared_bytes + c.shared > 48 << 10) return "its shared memory";
  if (kernel.function->parameter_bytes > 4096) return "its parameters";
  status = cudaErrorLaunchOutOfResources;
  const auto of_thread = static_cast<std::uint64_t>((kernel.registers + 7) / 8 * 8);
  if ((threads + 31) / 32 * 32 * of_thread > 65536) return "its registers";
  status = cudaSuccess;
  if (threads % 32 != 0) ptx::report("a block with an incomplete warp, of " + kernel.name);
  return nullptr;
}

struct CoverageAtExit {
  ~CoverageAtExit() {
    const char* const path = std::getenv("PTX_COVERAGE");
    if (!path) return;
    std::ofstream file(path, std::ios::app);
    for (const auto& [of_file, module] : kernels().modules)
      for (const ptx::Function& f : module->functions) {
        if (f.ran.empty()) continue;
        file << of_file << ' ' << f.name;
        for (const auto& [threads, launches] : f.block_sizes) file << ' ' << threads << ':' << launches;
        file << '\n';
        for (std::size_t k = 0; k < f.ran.size(); ++k)
          if (f.ran[k] && f.code[k].line > 0) file << ' ' << f.code[k].line;
        file << '\n';
      }
  }
} coverage_at_exit;

}  // namespace

extern "C" {

void** __cudaRegisterFatBinary(void* binary) { return static_cast<void**>(binary); }
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterVar(void**, char*, char*, const char*, int, std::size_t, int, int) {}
char __cudaInitModule(void**) { return 1; }
void __cudaRegisterFunction(void**, const char* host, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*,
                            int*) {
  kernels().by_host_function[host].name = name;
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared, cudaStream_t stream) {
  return configurations.push_back({grid, block, shared, stream}), 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared, void* stream) {
  const Configuration c = configurations.back();
  configurations.pop_back();
  *grid = c.grid, *block = c.block, *shared = c.shared;
  *static_cast<cudaStream_t*>(stream) = c.stream;
  return ptx::answer();
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host) {
  const auto it = kernels().by_host_function.find(host);
  if (it == kernels().by_host_function.end()) return ptx::answer(cudaErrorInvalidDeviceFunction);
  return *kernel = reinterpret_cast<cudaKernel_t>(&it->second), ptx::answer();
}
cudaError_t __cudaLaunchKernel(cudaKernel_t handle, dim3 grid, dim3 block, void** arguments, std::size_t shared,
                               cudaStream_t stream) {
  Kernel& kernel = *reinterpret_cast<Kernel*>(handle);
  load(kernel);
  if (kernel.name.find("row_kernel") != std::string::npos)
    block.x = static_cast<unsigned>(ptx::setting("PTX_ROW_BLOCK", block.x));
  cudaError_t status = cudaSuccess;
  if (const char* why = refusal(kernel, {grid, block, shared, stream}, status)) {
    ptx::report("a launch is refused for " + std::string(why) + ", of " + kernel.name);
    return ptx::answer(status);
  }
  const ptx::Function& f = *kernel.function;
  std::vector<std::uint8_t> parameters(f.parameter_bytes);
  for (std::size_t k = 0; k < f.parameters.size(); ++k)
    std::memcpy(parameters.data() + f.parameters[k].offset, arguments[k], f.parameters[k].bytes);
  ptx::enqueue(stream, [module = kernel.module, &f, grid, block, parameters = std::move(parameters)] {
    ptx::Launch(*module, f, grid, block, parameters.data()).run();
  });
  return ptx::answer();
}

}  // extern "C"
