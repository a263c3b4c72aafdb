// What a rank asks of its NICs, and in which order, by NICs that write down what they are asked.
#include <algorithm>
#include <string>

#include "check.hpp"
#include "fabricbench/transports/fabric_steps.hpp"

using namespace fabricbench;

namespace {

// Of all NICs of a rank: "write 1 send+0:8 receive+0" and the like, and "." where what was begun is ended.
using Log = std::vector<std::string>;

std::string name(Buffer buffer) {
  const char* const names[] = {"send", "receive", "host_send", "host_receive"};
  return names[static_cast<std::size_t>(buffer)];
}
std::string text(const Part& part) {
  return name(part.buffer) + "+" + std::to_string(part.offset) + ":" + std::to_string(part.bytes);
}

class ToldNic final : public FabricEndpoint {
 public:
  ToldNic(Log& log, std::string name) : log_(log), name_(std::move(name)) {}
  std::string card() const override { return {}; }
  void meet(const std::vector<std::string>&) override {}
  std::string device_memory() const override { return {}; }
  std::uint64_t most_bytes() const override { return 0; }
  void write(Flight& flight, int rank, const Part& part, Buffer there, std::uint64_t offset) override {
    begin(flight,
          "write " + std::to_string(rank) + " " + text(part) + " " + name(there) + "+" + std::to_string(offset));
  }
  void read(Flight& flight, int rank, const Part& part, Buffer there, std::uint64_t offset) override {
    begin(flight, "read " + std::to_string(rank) + " " + text(part) + " " + name(there) + "+" + std::to_string(offset));
  }
  void send(Flight& flight, int rank, std::uint64_t tag, const Part& part) override {
    tags.push_back(tag);
    begin(flight, "send " + std::to_string(rank) + " " + text(part));
  }
  void receive(Flight& flight, std::uint64_t tag, const Part& part) override {
    tags.push_back(tag);
    begin(flight, "receive " + text(part));
  }
  void send_note(Flight& flight, int rank, std::uint64_t) override { begin(flight, "tell " + std::to_string(rank)); }
  void receive_note(Flight& flight, std::uint64_t) override { begin(flight, "expect"); }
  void poll() override {
    if (!under_way_.empty()) log_.push_back(".");
    for (Flight::Operation* operation : under_way_) --*operation->left;
    under_way_.clear();
  }
  std::vector<std::uint64_t> tags;

 private:
  void begin(Flight& flight, const std::string& what) {
    log_.push_back(name_ + what);
    under_way_.push_back(&flight.begin());
  }
  Log& log_;
  std::string name_;
  std::vector<Flight::Operation*> under_way_;
};

// What rank `rank` asks for in two runs, of which only the second counts: places of the first are used again.
Log asked(const std::vector<Step>& steps, int rank, Access access, std::size_t nics = 1, std::uint64_t train = 0) {
  Log log;
  FabricEndpoints endpoints;
  for (std::size_t i = 0; i < nics; ++i)
    endpoints.push_back(std::make_unique<ToldNic>(log, nics == 1 ? "" : std::to_string(i) + " "));
  FabricTransfers work({{0, 1}, steps}, rank, access, endpoints, std::uint64_t{1} << 30, false);
  for (int i = 0; i < 2; ++i) {
    log.clear();
    if (train > 0) {
      work.run_train({train, train, 64, 0});
    } else {
      work.run(0);
    }
  }
  return log;
}

const std::vector<Step> kPingPong = {{{0, 1, 8}}, {{1, 0, 8}}};

}  // namespace

TEST(nobody_is_told_of_a_write_before_it_has_ended) {
  CHECK_EQUAL(asked({{{0, 1, 8, 16, 32}}}, 0, Access::write),
              (Log{"write 1 send+16:8 receive+32", ".", "tell 1", "."}));
  CHECK_EQUAL(asked({{{0, 1, 8, 16, 32}}}, 1, Access::write), (Log{"expect", "."}));
  CHECK_EQUAL(asked(kPingPong, 1, Access::write),
              (Log{"expect", ".", "write 0 send+0:8 receive+0", ".", "tell 0", "."}));
}

TEST(a_read_begins_when_its_source_is_ready_and_the_source_waits_for_its_end) {
  CHECK_EQUAL(asked({{{0, 1, 8, 16, 32}}}, 1, Access::read),
              (Log{"expect", ".", "read 0 receive+32:8 send+16", ".", "tell 0", "."}));
  CHECK_EQUAL(asked({{{0, 1, 8, 16, 32}}}, 0, Access::read), (Log{"tell 1", ".", "expect", "."}));
}

TEST(a_message_is_received_and_sent) {
  CHECK_EQUAL(asked(kPingPong, 0, Access::send), (Log{"send 1 send+0:8", ".", "receive receive+0:8", "."}));
}

TEST(a_rank_moves_its_own_memory_without_a_word) {
  Transfer own{0, 0, 8};
  own.source_place = Place::host;
  CHECK_EQUAL(asked({{own}}, 0, Access::write), (Log{"write 0 host_send+0:8 receive+0", "."}));
  own.relayed = true;
  own.destination_place = Place::host;
  CHECK_EQUAL(asked({{own}}, 0, Access::read), (Log{"read 0 host_receive+0:8 host_receive+0", "."}));
}

TEST(a_train_is_under_way_at_the_same_time) {
  const Log log = asked({{{0, 1, 8}}}, 0, Access::write, 1, 3);
  CHECK_EQUAL(log, (Log{"write 1 send+0:8 receive+0", "write 1 send+64:8 receive+64", "write 1 send+128:8 receive+128",
                        ".", "tell 1", "."}));
}

TEST(stripes_go_over_all_nics) {
  CHECK_EQUAL(
      asked({{{0, 1, 8192, 0, 100}}}, 0, Access::write, 2),
      (Log{"0 write 1 send+0:4096 receive+100", "1 write 1 send+4096:4096 receive+4196", ".", ".", "0 tell 1", "."}));
}

TEST(messages_between_two_ranks_have_tags_that_both_know) {
  // To rank 1 the second and third of a step, from rank 0 and from rank 2.
  const Step step = {{0, 2, 8}, {0, 1, 8}, {0, 1, 8, 8, 8}, {2, 1, 8, 0, 16}};
  std::vector<std::vector<std::uint64_t>> tags;
  for (const int rank : {0, 1, 2}) {
    Log log;
    FabricEndpoints endpoints;
    endpoints.push_back(std::make_unique<ToldNic>(log, ""));
    FabricTransfers({{0, 1, 2}, {step}}, rank, Access::send, endpoints, 64, false).run(0);
    tags.push_back(static_cast<ToldNic&>(*endpoints.front()).tags);
  }
  CHECK_EQUAL(tags[0].size(), 3u);
  CHECK_EQUAL(tags[1], (std::vector<std::uint64_t>{tags[0][1], tags[0][2], tags[2][1]}));
  CHECK(tags[1][0] != tags[1][1] && tags[1][1] != tags[1][2]);
}

TEST(pieces_of_a_message_have_tags_of_their_own) {
  Log log;
  FabricEndpoints endpoints;
  endpoints.push_back(std::make_unique<ToldNic>(log, ""));
  FabricTransfers({{0, 1}, {{{0, 1, 100}, {0, 1, 50}}}}, 0, Access::send, endpoints, 64, false).run(0);
  std::vector<std::uint64_t> tags = static_cast<ToldNic&>(*endpoints.front()).tags;
  std::sort(tags.begin(), tags.end());
  CHECK_EQUAL(tags.size(), 3u);
  CHECK(std::adjacent_find(tags.begin(), tags.end()) == tags.end());
}
