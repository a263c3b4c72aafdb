#include "fabricbench/secrets.hpp"

#include <fstream>

#include "check.hpp"

using fabricbench::is_recorded;
using fabricbench::redacted;

TEST(secrets_are_told_from_settings) {
  std::ifstream cases(DATA_FOLDER "/secrets.txt");
  int secrets = 0, plain = 0;
  for (std::string line; std::getline(cases, line);) {
    const std::size_t tab = line.find('\t');
    if (line.empty() || line[0] == '#') continue;
    const std::string value = line.substr(tab + 1);
    const bool secret = line.substr(0, tab) == "secret";
    ++(secret ? secrets : plain);
    if (fabricbench::is_secret(value) != secret) check::failed(__FILE__, __LINE__, line);
    CHECK_EQUAL(redacted(value), secret ? "<redacted>" : value);
  }
  CHECK(secrets > 15 && plain > 15);
}

TEST(secrets_only_documented_variables_are_recorded) {
  for (const char* name : {"NCCL_DEBUG", "UCX_TLS", "OMPI_MCA_pml", "CUDA_VISIBLE_DEVICES", "FI_CXI_RDZV_PROTO"}) {
    if (!is_recorded(name)) check::failed(__FILE__, __LINE__, name);
  }
  for (const char* name : {"NCCL_BEARER", "FI_PSK", "UCX_PASSPHRASE", "MPICH_PWD", "HOME", "", "NCCL_", "nccl_debug"}) {
    if (is_recorded(name)) check::failed(__FILE__, __LINE__, name);
  }
}

TEST(secrets_on_a_command_line) {
  const std::vector<std::string> words = {"fabricbench", "--token", "abc", "--password=abc",
                                          "--sizes",     "8",       "-o",  "/a/b"};
  const std::vector<std::string> clean = {"fabricbench", "--token", "<redacted>", "<redacted>",
                                          "--sizes",     "8",       "-o",         "/a/b"};
  CHECK_EQUAL(redacted(words), clean);
}
