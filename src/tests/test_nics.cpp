#include <unistd.h>

#include "check.hpp"
#include "fabricbench/errors.hpp"
#include "fabricbench/nics.hpp"
#include "folder.hpp"

using namespace fabricbench;

namespace {

// Two sockets, each with a switch that has a NIC and a GPU below it, and another NIC at a root of its own; on the
// second socket with a GPU.
class Machine {
 public:
  Machine() {
    add("0000:11:00.0", "devices/pci0000:10/0000:10:01.0", 0);  // GPU
    add("0000:12:00.0", "devices/pci0000:10/0000:10:01.0", 0);
    add("0000:21:00.0", "devices/pci0000:20", 0);
    add("0000:81:00.0", "devices/pci0000:80/0000:80:01.0", 1);  // GPU
    add("0000:82:00.0", "devices/pci0000:80/0000:80:01.0", 1);
    add("0000:91:00.0", "devices/pci0000:90", 1);
    add("0000:c1:00.0", "devices/pci0000:90", 1);  // GPU
  }
  std::string path() const { return sysfs_.path(); }
  const std::vector<Nic> nics = {{"mlx5_0", "verbs;ofi_rxm", "0000:12:00.0"},
                                 {"mlx5_1", "verbs;ofi_rxm", "0000:21:00.0"},
                                 {"mlx5_2", "verbs;ofi_rxm", "0000:82:00.0"},
                                 {"mlx5_10", "verbs;ofi_rxm", "0000:91:00.0"}};

  std::size_t one(const std::string& wanted, const Seat& seat) const {
    const std::vector<std::size_t> chosen = chosen_nics(nics, wanted, seat, path());
    CHECK_EQUAL(chosen.size(), 1u);
    return chosen[0];
  }

 private:
  void add(const std::string& bus_id, const std::string& parent, int node) const {
    sysfs_.write(parent + "/" + bus_id + "/numa_node", std::to_string(node));
    sysfs_.write("bus/pci/devices/.there", "");
    const std::string link = path() + "/bus/pci/devices/" + bus_id;
    CHECK(symlink((path() + "/" + parent + "/" + bus_id).c_str(), link.c_str()) == 0);
  }
  check::Folder sysfs_;
};

}  // namespace

TEST(a_gpu_has_the_nic_below_its_own_switch) {
  const Machine machine;
  CHECK_EQUAL(machine.one("near", {"0000:11:00.0", 0, 3}), 0u);
  CHECK_EQUAL(machine.one("near", {"0000:81:00.0", 1, 0}), 2u);
  CHECK_EQUAL(machine.one("near", {"0000:c1:00.0", 1, 0}), 3u);
}

TEST(a_rank_without_a_gpu_takes_the_nics_of_its_numa_node_in_turn) {
  const Machine machine;
  CHECK_EQUAL(machine.one("near", {"", 0, 0}), 0u);
  CHECK_EQUAL(machine.one("near", {"", 0, 1}), 1u);
  CHECK_EQUAL(machine.one("near", {"", 1, 0}), 2u);
  CHECK_EQUAL(machine.one("near", {"", -1, 3}), 3u);
}

TEST(nics_are_chosen_by_number_and_name_for_the_ranks_of_a_node) {
  const Machine machine;
  CHECK_EQUAL(machine.one("2", {"0000:11:00.0", 0, 5}), 2u);
  CHECK_EQUAL(machine.one("mlx5_10,mlx5_1", {"", 0, 0}), 3u);
  CHECK_EQUAL(machine.one("mlx5_10,mlx5_1", {"", 0, 3}), 1u);
  CHECK_EQUAL(chosen_nics(machine.nics, "all", {"", 0, 0}, machine.path()).size(), 4u);
  const std::vector<std::size_t> together = {3, 0};
  CHECK(chosen_nics(machine.nics, "mlx5_10+0,mlx5_1", {"", 0, 0}, machine.path()) == together);
  for (const char* wrong : {"4", "mlx5_3", "", "-1", "mlx5_1+"}) {
    CHECK(check::message_of<InputError>([&] { machine.one(wrong, {"", 0, 0}); }).find("mlx5_10") != std::string::npos);
  }
}

TEST(a_nic_is_known_by_its_network_interface) {
  const check::Folder sysfs;
  sysfs.write("devices/pci0000:10/0000:12:00.0/numa_node", "0");
  sysfs.write("class/net/hsn1/speed", "200000");
  CHECK(symlink((sysfs.path() + "/devices/pci0000:10/0000:12:00.0").c_str(),
                (sysfs.path() + "/class/net/hsn1/device").c_str()) == 0);
  const std::vector<Nic> nics = {{"cxi0", "cxi", "0000:11:00.0"}, {"cxi1", "cxi", "0000:12:00.0"}};
  CHECK_EQUAL(chosen_nics(nics, "hsn1", {"", 0, 0}, sysfs.path()).at(0), 1u);
  CHECK(check::message_of<InputError>([&] { chosen_nics(nics, "hsn0", {"", 0, 0}, sysfs.path()); }) !=
        "(nothing was thrown)");
}

TEST(a_nic_that_is_down_is_named) {
  std::vector<Nic> nics = {{"cxi0", "cxi", ""}, {"cxi1", "cxi", ""}};
  nics[1].up = false;
  CHECK_EQUAL(chosen_nics(nics, "near", {"", 0, 0}, "/none").size(), 1u);
  for (const char* wanted : {"near", "1", "all"}) {
    const std::string message = check::message_of<InputError>([&] { chosen_nics(nics, wanted, {"", 0, 1}, "/none"); });
    CHECK(message.find("cxi1") != std::string::npos);
  }
}

TEST(nics_are_numbered_as_people_count) {
  std::vector<Nic> nics = {{"mlx5_10", "", ""}, {"hsn0", "", ""}, {"mlx5_2", "", ""}};
  sort_by_name(nics);
  CHECK_EQUAL(nics[0].name, "hsn0");
  CHECK_EQUAL(nics[1].name, "mlx5_2");
}

TEST(interfaces_are_read_from_sysfs) {
  const check::Folder sysfs;
  sysfs.write("class/net/hsn0/speed", "200000\n");
  sysfs.write("class/net/hsn0/operstate", "up\n");
  sysfs.write("devices/pci0000:10/0000:12:00.0/numa_node", "0");
  CHECK(symlink((sysfs.path() + "/devices/pci0000:10/0000:12:00.0").c_str(),
                (sysfs.path() + "/class/net/hsn0/device").c_str()) == 0);
  sysfs.write("class/net/hsn1/speed", "-1\n");
  sysfs.write("class/net/hsn1/operstate", "down\n");
  const Nic nic = interface_of("hsn0", sysfs.path());
  CHECK_EQUAL(nic.bus_id, "0000:12:00.0");
  CHECK(nic.gbps == 200.0 && nic.up);
  const Nic down = interface_of("hsn1", sysfs.path());
  CHECK(down.bus_id.empty() && down.gbps == 0.0 && !down.up);
  CHECK(interface_of("none", sysfs.path()).up);
}

TEST(stripes_cover_a_message_once) {
  using Pieces = std::vector<Piece>;
  constexpr std::uint64_t kMost = std::uint64_t{1} << 40;
  CHECK_EQUAL(pieces_of(8, 1, kMost), (Pieces{{0, 0, 8}}));
  CHECK_EQUAL(pieces_of(8, 4, kMost), (Pieces{{0, 0, 8}}));
  CHECK_EQUAL(pieces_of(16384, 4, kMost), (Pieces{{0, 0, 4096}, {1, 4096, 4096}, {2, 8192, 4096}, {3, 12288, 4096}}));
  CHECK_EQUAL(pieces_of(9000, 2, kMost), (Pieces{{0, 0, 8192}, {1, 8192, 808}}));
  CHECK_EQUAL(pieces_of(10, 1, 4), (Pieces{{0, 0, 4}, {0, 4, 4}, {0, 8, 2}}));
  CHECK_EQUAL(pieces_of(0, 2, kMost), Pieces{});
  for (const std::uint64_t bytes : {1u, 4095u, 4097u, 1000003u}) {
    std::uint64_t covered = 0;
    for (const Piece& piece : pieces_of(bytes, 3, 70000)) {
      CHECK_EQUAL(piece.offset, covered);
      CHECK(piece.nic < 3 && piece.bytes <= 70000);
      covered += piece.bytes;
    }
    CHECK_EQUAL(covered, bytes);
  }
}
