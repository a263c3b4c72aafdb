#include <string>

#include "check.hpp"
#include "fabricbench/ccl_modes.hpp"
#include "fabricbench/errors.hpp"
#include "fabricbench/text.hpp"

using namespace fabricbench;

TEST(modes_are_named_in_one_order) {
  const CclModes modes = parse_ccl_modes("graph-20,registered");
  CHECK(modes.buffers == CclBuffers::registered);
  CHECK_EQUAL(modes.graph_calls, 20);
  CHECK_EQUAL(join(names(modes), ","), "registered,graph-20");
  CHECK_EQUAL(join(names(parse_ccl_modes("symmetric,communicators-2")), ","), "symmetric,communicators-2");
  CHECK(!CclModes{}.any());
}

TEST(modes_that_do_not_go_together_are_refused) {
  for (const char* text : {"", "fast", "registered,symmetric", "copy-engine,symmetric", "graph", "graph-0",
                           "graph-1001", "communicators-1", "communicators-9", "graph-2,communicators-2",
                           "graph-2,graph-3", "registered,", "graph-2x"}) {
    CHECK(check::message_of<InputError>([&] { parse_ccl_modes(text); }) != "(nothing was thrown)");
  }
}

// Lines as NCCL 2.28.3 prints them (src/transport/p2p.cc, net.cc, nvls.cc, scheduler/symmetric_sched.cc, ce_coll.cc,
// enqueue.cc).
TEST(ccl_log_tells_registered_buffers) {
  const std::string begin = "n1:10:11 [0] NCCL INFO rank 0 - ";
  CHECK(facts_in_ccl_log(begin + "IPC register buffer 0x7f00 size 64 (baseAddr 0x7f00 size 64) to peer 1 regAddr 0x1")
            .registered);
  CHECK(facts_in_ccl_log(begin + "IPC reuse buffer 0x7f00 size 64 (baseAddr 0x7f00 size 64) to peer 1 regAddr 0x1")
            .registered);
  CHECK(facts_in_ccl_log(begin + "NET register userbuff 0x7f00 (handle 0x1), buffSize 64").registered);
  CHECK(facts_in_ccl_log("n1:1:1 [0] NCCL INFO rank 0 successfully registered NVLS sendbuff 0x1, recvbuff 0x2")
            .registered);
}

TEST(ccl_log_of_what_was_only_asked_for_tells_nothing) {
  const CclLogFacts facts = facts_in_ccl_log(
      "n1:10:11 [0] NCCL INFO register comm 0x55 buffer 0x7f00 size 64\n"
      "n1:10:11 [0] NCCL INFO rank 0 - IPC registering buffer 0x7f00 size 64 (baseAddr 0x7f00 size 64) to peer 1\n"
      "n1:10:11 [0] NCCL INFO Proxy rank 0 register reqBuff 0x7f00 size 64 offset 0 legacyIpcCap 0 sameProcess 0\n"
      "n1:10:11 [0] NCCL INFO rank 0 failed to IPC register userbuff 0x7f00 buffSize 64 nPeers 1\n"
      "n1:10:11 [0] NCCL INFO rank 0 failed to NET register userbuff 0x7f00 buffSize 64 GDR flag 1\n"
      "n1:10:11 [0] NCCL INFO rank 0 - IPC deregistered buffer 0x7f00 peer 1 ipc remote buffer 0x1\n"
      "n1:10:11 [0] NCCL INFO Symmetric VA size=140GB\n"
      "n1:10:11 [0] NCCL INFO AllReduce: 64 Bytes -> Algo Ring proto LL channel{Lo..Hi}={0..0}\n");
  CHECK(!facts.registered);
  CHECK(!facts.symmetric);
  CHECK(!facts.copy_engine);
  CHECK(facts.communicators.empty());
}

TEST(ccl_log_tells_symmetric_kernels_copy_engines_and_who_was_called) {
  const std::string call =
      "n1:10:11 [0] NCCL INFO AllReduce: opCount 3 sendbuff 0x1 recvbuff 0x2 count 16 datatype 7 op 0 "
      "root 0 comm 0x55d0 [nranks=2] stream ";
  const CclLogFacts facts = facts_in_ccl_log(
      "n1:10:11 [0] NCCL INFO AllReduce [Symmetric]: 64 Bytes -> Kernel AllReduce_AGxLL_R nchannels 1 nthreads 512 "
      "nWorks 1\n"
      "n1:10:11 [0] NCCL INFO Init CE, rank 0 baseUCSymReadyPtr 0x1, baseUCSymComplPtr 0x2, seq num 0\n" +
      call + "0x1\n" + call + "0x2\n" + call + "0x1\n");
  CHECK(facts.symmetric);
  CHECK(facts.copy_engine);
  CHECK_EQUAL(facts.communicators.size(), 2u);
}

TEST(a_mode_is_proven_where_no_rank_contradicts) {
  CclProof first;
  first.add("registered", Operation::allreduce, 16, false);
  first.add("registered", Operation::allreduce, 65536, true);
  first.add("registered", Operation::alltoall, 65536, true);
  CclProof second;
  second.add("registered", Operation::alltoall, 65536, false);
  CclProof all;
  all.add_lines(first.lines());
  all.add_lines(second.lines());
  const std::string json = all.json();
  CHECK(json.find("\"proven\":{\"allreduce\":[65536]}") != std::string::npos);
  CHECK(json.find("\"unproven\":{\"allreduce\":[16],\"alltoall\":[65536]}") != std::string::npos);
  CHECK_EQUAL(all.proven("registered"), 1);
  CHECK_EQUAL(all.proven("symmetric"), 0);
  CHECK(CclProof{}.empty());
}
