#include "fabricbench/library_settings.hpp"

#include <dlfcn.h>
#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "fabricbench/header.hpp"
#include "fabricbench/loaded.hpp"
#include "fabricbench/private_log.hpp"
#include "fabricbench/proof_logs.hpp"
#include "fabricbench/secrets.hpp"

namespace fabricbench {

namespace {

using Settings = std::map<std::string, std::string>;

template <typename Number>
std::string number_in(const std::vector<char>& bytes) {
  return std::to_string(*reinterpret_cast<const Number*>(bytes.data()));
}

std::string text_of(MPI_Datatype type, const std::vector<char>& bytes) {
  if (type == MPI_CHAR) return bytes.data();
  if (type == MPI_C_BOOL) return bytes[0] != 0 ? "true" : "false";
  if (type == MPI_INT || type == MPI_INT32_T) return number_in<int>(bytes);
  if (type == MPI_UNSIGNED || type == MPI_UINT32_T) return number_in<unsigned>(bytes);
  if (type == MPI_UNSIGNED_LONG) return number_in<unsigned long>(bytes);
  if (type == MPI_UNSIGNED_LONG_LONG || type == MPI_UINT64_T) return number_in<unsigned long long>(bytes);
  if (type == MPI_INT64_T || type == MPI_COUNT) return number_in<std::int64_t>(bytes);
  if (type == MPI_DOUBLE) return number_in<double>(bytes);
  return {};
}

// Of one control variable; empty where it cannot be read.
std::string value_of(int index, MPI_Datatype type) {
  MPI_T_cvar_handle handle;
  int count = 0, size = 0;
  if (type == MPI_DATATYPE_NULL || MPI_Type_size(type, &size) != MPI_SUCCESS) return {};
  if (MPI_T_cvar_handle_alloc(index, nullptr, &handle, &count) != MPI_SUCCESS) return {};
  // With a zero behind, for texts.
  std::vector<char> bytes(static_cast<std::size_t>(count) * static_cast<std::size_t>(size) + 1);
  const bool known = MPI_T_cvar_read(handle, bytes.data()) == MPI_SUCCESS;
  MPI_T_cvar_handle_free(&handle);
  return known && (count == 1 || type == MPI_CHAR) ? text_of(type, bytes) : std::string();
}

void add_those_of_mpi(Settings& settings) {
  int provided = 0, number = 0;
  if (MPI_T_init_thread(MPI_THREAD_SINGLE, &provided) != MPI_SUCCESS) return;
  // A parameter of Open MPI is set by a variable of its own name behind this.
  const std::string before = mpi_library_text().rfind("Open MPI", 0) == 0 ? "OMPI_MCA_" : "";
  if (MPI_T_cvar_get_num(&number) != MPI_SUCCESS) number = 0;
  for (int index = 0; index < number; ++index) {
    char name[1024] = "";
    int length = sizeof name, description = 0, verbosity = 0, binding = 0, scope = 0;
    MPI_Datatype type = MPI_DATATYPE_NULL;
    const int result =
        MPI_T_cvar_get_info(index, name, &length, &verbosity, &type, nullptr, nullptr, &description, &binding, &scope);
    // A variable that a library no longer has keeps its number; a constant, such as a version, cannot be set.
    if (result != MPI_SUCCESS || binding != MPI_T_BIND_NO_OBJECT || scope == MPI_T_SCOPE_CONSTANT) continue;
    if (const std::string value = value_of(index, type); !value.empty()) settings[before + name] = value;
  }
  MPI_T_finalize();
}

// Handles of the libraries that are loaded whose files have names that begin so.
std::vector<void*> loaded_handles(const std::vector<std::string>& beginnings) {
  std::vector<void*> handles;
  for (const LoadedLibrary& library : loaded_libraries()) {
    const std::string file = library.path.substr(library.path.rfind('/') + 1);
    for (const std::string& beginning : beginnings) {
      if (file.rfind(beginning, 0) != 0) continue;
      if (void* const handle = dlopen(library.path.c_str(), RTLD_LAZY | RTLD_NOLOAD)) handles.push_back(handle);
    }
  }
  return handles;
}

template <typename Function>
Function* function_of(void* library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library, name));
}

// As `ucx_info -c`, by the functions of UCP that is loaded: UCX_NAME=VALUE on each line.
void add_those_of_ucp(Settings& settings) {
  for (void* const library : loaded_handles({"libucp.so", "libucp-"})) {
    auto* const read = function_of<int(const char*, const char*, void**)>(library, "ucp_config_read");
    auto* const print = function_of<void(const void*, std::FILE*, const char*, int)>(library, "ucp_config_print");
    auto* const release = function_of<void(void*)>(library, "ucp_config_release");
    void* config = nullptr;
    if (read == nullptr || print == nullptr || release == nullptr || read(nullptr, nullptr, &config) != 0) continue;
    char* text = nullptr;
    std::size_t size = 0;
    if (std::FILE* const stream = open_memstream(&text, &size); stream != nullptr) {
      constexpr int kPrintConfig = 1;  // UCS_CONFIG_PRINT_CONFIG
      print(config, stream, nullptr, kPrintConfig);
      std::fclose(stream);
      const std::string lines(text, size);
      for (std::size_t begin = 0, end; (end = lines.find('\n', begin)) != std::string::npos; begin = end + 1) {
        const std::string line = lines.substr(begin, end - begin);
        const std::size_t equals = line.find('=');
        if (equals != std::string::npos && line.rfind("UCX_", 0) == 0)
          settings[line.substr(0, equals)] = line.substr(equals + 1);
      }
      std::free(text);
    }
    release(config);
  }
}

// As `fi_info -e`, by the functions of libfabric that is loaded: a variable's value, else the default that its help
// names.
void add_those_of_libfabric(Settings& settings) {
  struct Parameter {  // fi_param of rdma/fabric.h
    const char* name;
    int type;
    const char* help;
    const char* value;
  };
  for (void* const library : loaded_handles({"libfabric.so", "libfabric-"})) {
    auto* const read = function_of<int(Parameter**, int*)>(library, "fi_getparams");
    auto* const release = function_of<void(Parameter*)>(library, "fi_freeparams");
    Parameter* parameters = nullptr;
    int count = 0;
    if (read == nullptr || release == nullptr || read(&parameters, &count) != 0) continue;
    for (int i = 0; i < count; ++i) {
      const Parameter& parameter = parameters[i];
      const std::string value = parameter.value != nullptr  ? parameter.value
                                : parameter.help != nullptr ? default_in_help(parameter.help)
                                                            : std::string();
      if (parameter.name != nullptr && !value.empty()) settings[parameter.name] = value;
    }
    release(parameters);
  }
}

}  // namespace

std::map<std::string, std::string> library_settings() {
  Settings settings;
  add_those_of_mpi(settings);
  add_those_of_ucp(settings);
  add_those_of_libfabric(settings);
  // NCCL's function that returns parameters (2.30 and later) has those of its log alone: what a communicator came to.
  settings.merge(settings_in_ccl_log(read_private_log()));
  for (auto& [name, value] : settings) value = redacted(value);
  return settings;
}

}  // namespace fabricbench
