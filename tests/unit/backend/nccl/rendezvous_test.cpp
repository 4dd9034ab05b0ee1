// SPDX-License-Identifier: Apache-2.0
// Real sockets on this machine.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <future>
#include <map>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>

#include <shardkit/backend/nccl/launcher.hpp>
#include <shardkit/backend/nccl/rendezvous.hpp>

#include "../../thrown_message.hpp"
#include "../verb_checks.hpp"
#include "gpu_ranks.hpp"

namespace rendezvous_test {

namespace {

using namespace shardkit;
using nccl::Meeting;
using nccl::UniqueId;
using nccl::detail::Deadline;
using nccl::detail::Socket;
using rank_checks::contains;

constexpr std::chrono::milliseconds patient{rank_checks::sanitized ? 60000 : 20000};
constexpr std::chrono::milliseconds impatient{400};

/// A port of this machine that is free at the moment.
std::uint16_t free_port() {
    const Socket any(::socket(AF_INET, SOCK_STREAM, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    REQUIRE(::bind(any.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
    REQUIRE(::getsockname(any.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
    return ntohs(address.sin_port);
}
Meeting meeting(std::uint16_t port, std::size_t rank, std::size_t size) {
    return {"localhost", port, rank, size, "the job's"};
}
/// A rank's part in a thread of its own.
template <class... Given>
std::future<UniqueId> later(const Given&... given) {
    return std::async(std::launch::async, [=] { return nccl::meet(given...); });
}
template <class Error = CommError>
std::string error_of(std::future<UniqueId>& rank) {
    return thrown_message<Error>([&] { rank.get(); });
}
Socket connection(std::uint16_t port) {
    std::string error;
    const auto addresses = nccl::detail::resolve("127.0.0.1", port, error);
    REQUIRE(addresses != nullptr);
    const Deadline deadline(patient);
    for (;;) {
        Socket made = nccl::detail::connect_to(*addresses, deadline, patient, error);
        if (made || deadline.over()) { return made; }
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
}
bool comes(const Socket& socket) { return nccl::detail::is_ready(socket, POLLIN, static_cast<int>(patient.count())); }
/// The bytes that come back until the other side closes.
template <class Said>
std::size_t answer_to(const Socket& socket, const Said& said) {
    REQUIRE(nccl::detail::send_record(socket, said));
    std::array<std::byte, 1000> answer{};
    std::size_t have = 0;
    for (ssize_t count = 1; count > 0; have += static_cast<std::size_t>(count)) {
        REQUIRE(comes(socket));
        count = std::max<ssize_t>(::recv(socket.get(), answer.data(), answer.size(), 0), 0);
    }
    return have;
}

}  // namespace

TEST_CASE("nccl rendezvous: every rank gets rank 0's id, whoever comes first") {
    gpu_ranks::restart();
    for (const bool host_first : {true, false}) {
        const std::uint16_t port = free_port();
        std::vector<std::future<UniqueId>> ranks(4);
        for (std::size_t i = 0; i < ranks.size(); ++i) {
            const std::size_t rank = host_first ? i : ranks.size() - 1 - i;
            ranks[rank] = later(meeting(port, rank, ranks.size()), patient);
            std::this_thread::sleep_for(std::chrono::milliseconds(30));
        }
        const UniqueId id = ranks[0].get();
        for (std::size_t rank = 1; rank < ranks.size(); ++rank) { CHECK(ranks[rank].get() == id); }
    }
    CHECK(standin::calls("ncclGetUniqueId") == 2);
}

TEST_CASE(
    "nccl rendezvous: a rank that does not come, and a rank 0 that does not, end the others after the timeout") {
    gpu_ranks::restart();
    const std::uint16_t port = free_port();
    auto host = later(meeting(port, 0, 4), impatient);
    CHECK_NOTHROW(nccl::meet(meeting(port, 2, 4), patient));
    CHECK(contains(error_of(host),
                   "rank 0 at localhost:" + std::to_string(port) + ": rank 1, 3 did not come within 400 ms"));
    auto alone = later(meeting(port, 1, 4), impatient);
    CHECK(contains(error_of(alone), "rank 0 gave no id within 400 ms (Connection refused)"));
    Meeting nowhere = meeting(port, 1, 2);
    nowhere.host = "no-such-host.invalid";
    auto lost = later(nowhere, impatient);
    CHECK(contains(error_of(lost), "the name no-such-host.invalid: "));
}

TEST_CASE("nccl rendezvous: strangers get nothing and hold nobody up") {
    gpu_ranks::restart();
    const std::uint16_t port = free_port();
    auto host = later(meeting(port, 0, 2), patient);
    const Socket silent = connection(port);
    std::array<char, 150> request{};
    std::ranges::copy(std::string("GET / HTTP/1.1\r\nHost: localhost\r\n"), request.begin());
    CHECK(answer_to(connection(port), request) == 0);
    Meeting wrong = meeting(port, 1, 2);
    wrong.token = "the jobs";
    CHECK(answer_to(connection(port), nccl::detail::hello_of(wrong)) == 0);
    CHECK(answer_to(connection(port), nccl::detail::hello_of(meeting(port, 0, 2))) == 0);  // there is one already
    CHECK(answer_to(connection(port), nccl::detail::hello_of(meeting(port, 2, 2))) == 0);
    auto guest = later(wrong, impatient);
    CHECK(contains(error_of(guest), "another job's, or the token is another one"));
    CHECK(answer_to(connection(port), nccl::detail::hello_of(meeting(port, 1, 2))) == sizeof(nccl::detail::Answer));
    host.get();
    wrong.token = std::string(65, 'x');
    CHECK(contains(thrown_message<std::invalid_argument>([&] { nccl::meet(wrong, impatient); }), "at most 64"));
}

TEST_CASE("nccl rendezvous: a rank of another number of ranks, a port in use and another program's port are told") {
    gpu_ranks::restart();
    const std::uint16_t port = free_port();
    auto host = later(meeting(port, 0, 3), std::chrono::milliseconds(1500));
    auto guest = later(meeting(port, 1, 2), patient);
    CHECK(contains(error_of(guest), "rank 0 expects another number of ranks than 2"));
    CHECK(contains(thrown_message<CommError>([&] { nccl::meet(meeting(port, 0, 3), patient); }),
                   "cannot listen at port " + std::to_string(port) + ": Address already in use"));
    CHECK(contains(error_of(host), "rank 1, 2 did not come"));

    std::string error;
    const std::uint16_t taken = free_port();
    const Socket other = nccl::detail::listen_at(taken, error);
    REQUIRE(other);
    auto asks = later(meeting(taken, 1, 2), patient);
    REQUIRE(comes(other));
    {
        const Socket answers(::accept(other.get(), nullptr, nullptr));
        nccl::detail::Answer greeting;
        greeting.magic.fill('!');
        REQUIRE(nccl::detail::send_record(answers, greeting));
        REQUIRE(comes(answers));
    }
    REQUIRE(comes(other));  // it tries again
    const Socket answers(::accept(other.get(), nullptr, nullptr));
    nccl::detail::Answer right{.agrees = 1};
    right.id.bytes[5] = std::byte{1};
    REQUIRE(nccl::detail::send_record(answers, right));
    CHECK(asks.get().bytes[5] == std::byte{1});
}

TEST_CASE("nccl rendezvous: a launcher's processes connect by it, with NCCL_COMM_ID and without") {
    for (const bool with_address : {false, true}) {
        gpu_ranks::restart();
        if (with_address) { REQUIRE(::setenv("NCCL_COMM_ID", "127.0.0.1:29512", 1) == 0); }
        const std::string port = std::to_string(free_port());
        const auto outcomes = gpu_ranks::each_in_a_thread(3, [&](std::size_t rank) {
            const std::map<std::string, std::string> variables{{"RANK", std::to_string(rank)},
                                                               {"WORLD_SIZE", "3"},
                                                               {"LOCAL_RANK", std::to_string(rank)},
                                                               {"MASTER_ADDR", "127.0.0.1"},
                                                               {"MASTER_PORT", port}};
            const auto look_up = [&](const char* name) {
                const auto found = variables.find(name);
                return found == variables.end() ? std::nullopt : std::optional<std::string>(found->second);
            };
            nccl::World world(nccl::Launcher::from(look_up, 8), gpu_ranks::patient());
            verb_checks::check_all_reduce<float, float>(gpu_ranks::Comm(world), 10, 1);
            world.finish();
        });
        CHECK(gpu_ranks::first_error(outcomes) == "");
        CHECK((std::getenv("NCCL_COMM_ID") != nullptr) == with_address);  // the user's
        REQUIRE(::unsetenv("NCCL_COMM_ID") == 0);
    }
}

}  // namespace rendezvous_test
