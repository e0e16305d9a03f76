// SPDX-License-Identifier: MIT
//
// Ranks meet over TCP on the loopback interface, as threads and as processes, and everything that can keep them from
// it: ranks that are missing, come twice or disagree, strangers, and ranks that disappear later.
#include "engine/comm/rendezvous.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "engine/comm/socket.h"
#include "engine/core/atomic_file.h"
#include "engine/core/hash.h"
#include "tests/error_message.h"

namespace ab {
namespace {

using namespace std::chrono_literals;
using test::contains;

Deadline in(std::chrono::milliseconds time) { return std::chrono::steady_clock::now() + time; }

/// An address of this machine at which nobody listens.
HostPort free_place() {
  HostPort at{"127.0.0.1", 0};
  listen_at(at);
  return at;
}
std::string address_of(const HostPort& at) { return "tcp://" + at.str(); }

using BootstrapBody = std::function<void(Bootstrap&)>;

/// Runs a thread for each of `options`, and returns what each of them threw, or "".
std::vector<std::string> meet(const std::vector<RendezvousOptions>& options, const BootstrapBody& body) {
  std::vector<std::string> errors(options.size());
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < options.size(); ++i)
    threads.emplace_back([&, i] {
      try {
        body(*make_rendezvous(options[i]));
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::communication);
        errors[i] = error.what();
      }
    });
  threads.clear();
  return errors;
}

std::vector<RendezvousOptions> all_ranks(int ranks, const std::string& address, std::chrono::seconds timeout = 20s) {
  std::vector<RendezvousOptions> options;
  for (int rank = 0; rank < ranks; ++rank) options.push_back({rank, ranks, address, timeout});
  return options;
}

void nothing(Bootstrap&) {}

/// The first failure that this rank hears of; waits at most ten seconds.
std::string wait_for_failure(Bootstrap& bootstrap) {
  std::optional<Error> error;
  for (const Deadline deadline = in(10s); !error && std::chrono::steady_clock::now() < deadline;) {
    error = bootstrap.failure();
    std::this_thread::sleep_for(1ms);
  }
  return error ? fmt::format("{}, exit code {}", error->what(), static_cast<int>(error->kind())) : "";
}

void check_gather(Bootstrap& bootstrap) {
  for (const std::size_t length : {0, 3, 4096}) {
    const auto text = [length](int rank) { return std::string(length, static_cast<char>('a' + rank)); };
    const std::vector<std::string> all = bootstrap.gather_texts(text(bootstrap.rank()));
    ASSERT_EQ(all.size(), static_cast<std::size_t>(bootstrap.ranks()));
    for (int rank = 0; rank < bootstrap.ranks(); ++rank) EXPECT_EQ(all[static_cast<std::size_t>(rank)], text(rank));
  }
  EXPECT_FALSE(bootstrap.failure());
}

class RendezvousRanks : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Counts, RendezvousRanks, testing::Values(1, 2, 3, 16));

TEST_P(RendezvousRanks, MeetOverTcpAndExchangeTexts) {
  for (const std::string& error : meet(all_ranks(GetParam(), address_of(free_place())), check_gather))
    EXPECT_EQ(error, "");
}

TEST_P(RendezvousRanks, MeetByAFileWhateverAnEarlierRunLeftInIt) {
  const std::string file = testing::TempDir() + fmt::format("abtrain_rendezvous_{}_{}", getpid(), GetParam());
  write_file_atomically(file, free_place().str());
  for (const std::string& error : meet(all_ranks(GetParam(), "file://" + file), check_gather)) EXPECT_EQ(error, "");
  EXPECT_EQ(std::filesystem::exists(file), GetParam() == 1);  // a world of one looks at nothing
  std::filesystem::remove(file);
}

TEST(Rendezvous, ProcessesMeet) {
  const std::string address = address_of(free_place());
  std::vector<pid_t> children;
  for (int rank = 0; rank < 3; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      bool fine = false;
      try {
        const auto bootstrap = make_rendezvous({rank, 3, address, 20s});
        fine = bootstrap->gather_texts(std::to_string(10 * rank)) == std::vector<std::string>{"0", "10", "20"};
      } catch (const std::exception&) {
      }
      _exit(fine ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
}

TEST(Rendezvous, MissingRanksAreNamedToAll) {
  const HostPort at = free_place();
  std::vector<RendezvousOptions> options = all_ranks(4, address_of(at), 1s);
  options.erase(options.begin() + 2);
  for (const std::string& error : meet(options, [](Bootstrap& b) { b.gather_texts(""); }))
    EXPECT_EQ(error,
              fmt::format("rank 2 of 4 did not come to tcp://{} within 1 s; see that they run and were given this "
                          "address, which only this machine can reach",
                          at.str()));
}

TEST(Rendezvous, WithoutRankZeroTheOthersSayWhereTheyLooked) {
  const HostPort at = free_place();
  const std::string file = testing::TempDir() + fmt::format("abtrain_no_rendezvous_{}", getpid());
  EXPECT_TRUE(
      contains(meet({{1, 2, address_of(at), 1s}}, nothing)[0],
               fmt::format("rank 1 did not find rank 0 at tcp://{} within 1 s (Connection refused)", at.str())));
  EXPECT_TRUE(contains(meet({{1, 2, "file://" + file, 1s}}, nothing)[0], "did not find rank 0 at file://" + file));
  EXPECT_TRUE(
      contains(meet({{1, 2, "tcp://no-such-host.invalid:29500", 1s}}, nothing)[0], "rank 1 did not find rank 0"));
}

TEST(Rendezvous, APortInUseAndAHostElsewhereAreNamed) {
  HostPort taken{"127.0.0.1", 0};
  const Socket other = listen_at(taken);
  const std::string in_use = meet({{0, 2, address_of(taken), 1s}}, nothing)[0];
  EXPECT_TRUE(contains(in_use, fmt::format("port {} of 127.0.0.1 is in use", taken.port))) << in_use;
  const std::string elsewhere = meet({{0, 2, "tcp://192.0.2.1:29500", 1s}}, nothing)[0];  // kept for documentation
  EXPECT_TRUE(contains(elsewhere, "rank 0 cannot listen at 192.0.2.1:29500")) << elsewhere;
}

TEST(Rendezvous, ASecondProcessOfOneRankIsSentAwayAndAllHearOfIt) {
  const HostPort at = free_place();
  const std::string address = address_of(at);
  const auto errors =
      meet({{0, 3, address, 1s}, {1, 3, address, 1s}, {1, 3, address, 1s}}, [](Bootstrap& b) { b.gather_texts(""); });
  const std::string twice = fmt::format("two processes came to {} as rank 1; give every process its own RANK", address);
  const std::string missing = fmt::format(
      "rank 2 of 3 did not come to {} within 1 s, but two processes were rank 1; see that they run and were "
      "given this address, which only this machine can reach",
      address);
  EXPECT_EQ(errors[0], missing);
  EXPECT_EQ(std::minmax(errors[1], errors[2]), std::minmax(missing, twice));
}

/// The hello of a rank of 2 and of the job "", whose hash is XXH3's of nothing.
std::string hello_of(int rank, int ranks) {
  const std::uint64_t job = hash64(nullptr, 0);
  std::string words = "abtrain?";
  for (const std::uint64_t number :
       {static_cast<std::uint64_t>(rank), static_cast<std::uint64_t>(ranks), job & 0xffffffff, job >> 32})
    for (int shift = 0; shift < 32; shift += 8) words += static_cast<char>(number >> shift & 0xff);
  return words;
}

/// A caller that says `words` as soon as someone listens, and waits until it has an answer of 8 bytes.
Socket call(const HostPort& at, const std::string& words, std::string& answer) {
  std::string problem;
  Socket caller;
  for (const Deadline deadline = in(10s); !caller && std::chrono::steady_clock::now() < deadline;)
    caller = connect_to(at, deadline, problem);
  answer.assign(8, '?');
  (void)caller.write(words.data(), words.size(), in(1s));
  (void)caller.read(answer.data(), answer.size(), in(10s));
  return caller;
}

TEST(Rendezvous, AHelloOfARankThatCannotBeIsSentAwayAndTheRanksStillMeet) {
  const HostPort at = free_place();
  std::string late_error = "did not run";
  std::jthread late([&] {
    for (const int rank : {7, 2, 0, -1}) {
      std::string answer;
      const Socket stranger = call(at, hello_of(rank, 2), answer);
      EXPECT_EQ(answer, "not you!") << rank;
    }
    late_error = meet({{1, 2, address_of(at), 20s}}, check_gather)[0];
  });
  EXPECT_EQ(meet({{0, 2, address_of(at), 20s}}, check_gather)[0], "");
  late.join();
  EXPECT_EQ(late_error, "");
}

TEST(Rendezvous, ARankThatHasLeftIsReplaced) {
  const HostPort at = free_place();
  std::vector<std::string> late_errors{"did not run"};
  std::jthread late([&] {
    std::string answer;
    { const Socket first = call(at, hello_of(1, 3), answer); }
    EXPECT_EQ(answer, "abtrain!");
    { const Socket second = call(at, hello_of(2, 3), answer); }  // the last to come, and gone
    EXPECT_EQ(answer, "abtrain!");
    late_errors = meet({{1, 3, address_of(at), 20s}, {2, 3, address_of(at), 20s}}, check_gather);
  });
  EXPECT_EQ(meet({{0, 3, address_of(at), 20s}}, check_gather)[0], "");
  late.join();
  EXPECT_EQ(late_errors, (std::vector<std::string>{"", ""}));
}

TEST(Rendezvous, ARankThatHasLeftForGoodIsNotWaitedForUntilTheEnd) {
  const HostPort at = free_place();
  std::jthread late([&] {
    std::string answer;
    const Socket first = call(at, hello_of(1, 3), answer);
  });
  EXPECT_EQ(meet({{0, 3, address_of(at), 2s}}, nothing)[0],
            fmt::format("rank 1 came to {} and has ended; its own output says why", address_of(at)));
}

TEST(Rendezvous, ARankOfAnotherWorldSizeIsSentAway) {
  const std::string address = address_of(free_place());
  const auto errors = meet({{0, 2, address, 2s}, {1, 3, address, 20s}}, [](Bootstrap& b) { b.gather_texts(""); });
  EXPECT_TRUE(contains(errors[0], "rank 1")) << errors[0];
  EXPECT_TRUE(contains(errors[1], "all processes of a job one WORLD_SIZE")) << errors[1];
}

TEST(Rendezvous, StrangersAreSentAwayAndTheRanksStillMeet) {
  const HostPort at = free_place();
  std::vector<Socket> strangers;
  std::string late_error = "did not run";
  std::jthread late([&] {
    std::string problem;
    for (const std::string& words :
         {std::string("GET / HTTP/1.1\r\n\r\n"), std::string("abt"), std::string(1 << 16, '\xff'), std::string()}) {
      Socket& stranger = strangers.emplace_back();
      for (const Deadline deadline = in(10s); !stranger && std::chrono::steady_clock::now() < deadline;)
        stranger = connect_to(at, deadline, problem);
      (void)stranger.write(words.data(), words.size(), in(1s));
    }
    late_error = meet({{1, 2, address_of(at), 20s}}, check_gather)[0];
  });
  EXPECT_EQ(meet({{0, 2, address_of(at), 20s}}, check_gather)[0], "");
  late.join();
  EXPECT_EQ(late_error, "");
}

TEST(Rendezvous, ARankOfAnotherJobIsSentAwayAndTheRanksStillMeet) {
  const std::string address = address_of(free_place());
  std::string other_error = "did not run", late_error = "did not run";
  std::jthread others([&] {
    other_error = meet({{1, 2, address, 20s, "that one"}}, nothing)[0];
    late_error = meet({{1, 2, address, 20s, "this one"}}, check_gather)[0];
  });
  EXPECT_EQ(meet({{0, 2, address, 20s, "this one"}}, check_gather)[0], "");
  others.join();
  EXPECT_EQ(
      other_error,
      fmt::format("rank 1 came to {}, where ranks of another job meet (this one: that one); give each job a place "
                  "of its own, and all processes of a job one WORLD_SIZE",
                  address));
  EXPECT_EQ(late_error, "");
}

/// A first rank that answers as abtrain does and then sends `frame` instead of texts.
std::string error_after(const std::string& frame) {
  HostPort at{"127.0.0.1", 0};
  const Socket listener = listen_at(at);
  const std::jthread impostor([&] {
    Socket caller;
    while (!caller) caller = accept_from(listener);
    const std::string words = "abtrain!" + frame;
    (void)caller.write(words.data(), words.size(), in(1s));
    char rest[64];
    (void)caller.read(rest, sizeof rest, in(200ms));
  });
  return meet({{1, 2, address_of(at), 1s}}, [](Bootstrap& b) { b.gather_texts("hello"); })[0];
}

TEST(Rendezvous, LengthsAndKindsFromTheNetworkAreNotBelieved) {
  EXPECT_TRUE(contains(error_after("\xff\xff\xff\xff"
                                   "t"),
                       "4294967295 bytes that is none of abtrain's"));
  EXPECT_TRUE(contains(error_after(std::string("\x01\0\0\0?x", 6)), "none of abtrain's"));
  EXPECT_TRUE(contains(error_after(std::string("\x04\0\0\0t\xff\xff\xff\xff", 9)), "cut off"));
  EXPECT_TRUE(contains(error_after(std::string("\x04\0\0\0t\x01\0\0\0", 9)), "cut off"));
  EXPECT_TRUE(contains(error_after(std::string("\x09\0\0\0t", 5)), "rank 0 has ended"));
}

TEST(Rendezvous, WhatIsNotAnAddressIsRefused) {
  for (const char* address : {"", "node1:29500", "tcp://node1", "tcp://:29500", "tcp://node1:0", "tcp://node1:65536",
                              "tcp://node1:x", "file://relative"})
    EXPECT_THROW(make_rendezvous({1, 2, address, 1s}), Error) << address;
  EXPECT_THROW(make_rendezvous({2, 2, "tcp://127.0.0.1:29500", 1s}), Error);
  EXPECT_EQ(parse_host_port("[::1]:29500").host, "::1");
  EXPECT_EQ(parse_host_port("[::1]:29500").str(), "[::1]:29500");
}

TEST(Rendezvous, AnAbortReachesAllRanks) {
  for (const int failing : {0, 2}) {
    const auto errors = meet(all_ranks(4, address_of(free_place())), [failing](Bootstrap& bootstrap) {
      bootstrap.gather_texts("");
      if (bootstrap.rank() == failing) bootstrap.abort("loss is NaN", 5);
      else EXPECT_EQ(wait_for_failure(bootstrap), fmt::format("rank {} failed: loss is NaN, exit code 5", failing));
    });
    for (const std::string& error : errors) EXPECT_EQ(error, "");
  }
}

TEST(Rendezvous, ARankThatDisappearsIsNoticed) {
  for (const int failing : {0, 1})
    meet(all_ranks(3, address_of(free_place())), [failing](Bootstrap& bootstrap) {
      bootstrap.gather_texts("");
      if (bootstrap.rank() == failing) throw Error(ErrorKind::communication, "gone");
      EXPECT_EQ(wait_for_failure(bootstrap),
                fmt::format("rank {} has ended; its own output says why, exit code 6", failing));
    });
}

TEST(Rendezvous, RanksThatFinishAreNotMissed) {
  meet(all_ranks(3, address_of(free_place())), [](Bootstrap& bootstrap) {
    bootstrap.gather_texts("");
    if (bootstrap.rank() != 1) return;
    for (const Deadline deadline = in(300ms); std::chrono::steady_clock::now() < deadline;)
      EXPECT_FALSE(bootstrap.failure());
  });
}

}  // namespace
}  // namespace ab
