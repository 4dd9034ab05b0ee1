// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/self/communicator.hpp>
#include <shardkit/backend/self/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/rank/all_reduce_value.hpp>
#include <shardkit/verbs/split.hpp>

#include "rank_checks.hpp"
#include "verb_checks.hpp"

namespace self_test {

namespace {

using namespace shardkit;
using namespace verb_checks;

}  // namespace

// Of a type of registers, one that is converted, and one of odd addresses.
TEST_CASE_TEMPLATE("self: every verb gives what one rank of any engine gives", T, float, bf16, std::uint8_t) {
    self::World world;
    const shardkit::Communicator comm(world);
    constexpr std::size_t sizes[] = {0, 1, 2, 3, 17, 1000, 100003};
    for (const std::size_t size : sizes) {
        check_all_gather<T>(comm, size, 1);
        check_reduce_scatter<T, T>(comm, size, 1);
        check_all_reduce<T, T>(comm, size, 1);
        check_copies<T>(comm, size, 1);
    }
    CHECK(world.journal().traffic().entries().empty());
}

TEST_CASE("self: reductions convert between types") {
    self::World world;
    const shardkit::Communicator comm(world);
    CHECK_NOTHROW(check_all_reduce<bf16, float>(comm, 1030, 1));
    CHECK_NOTHROW(check_reduce_scatter<float, bf16>(comm, 1030, 1));
    CHECK_NOTHROW(check_all_reduce<fp16, double>(comm, 1030, 1));
}

TEST_CASE("self: rank, size, names and splits") {
    self::World world;
    const shardkit::Communicator comm(world);
    CHECK(comm.rank() == 0);
    CHECK(comm.size() == 1);
    CHECK(comm.axes() == "world");
    const shardkit::Communicator dp = split(comm, 5, 7, "dp");
    const shardkit::Communicator tp = dp.named("tp");
    CHECK(dp.axes() == "dp");
    CHECK(tp.axes() == "tp");
    CHECK(tp.size() == 1);
    CHECK(&tp.traffic() == &world.journal().traffic());
    for (int i = 0; i < 100; ++i) { comm.named(std::to_string(i)); }
    CHECK(dp.axes() == "dp");  // names stay where they are
    CHECK_THROWS_AS(split(comm, std::size_t{1} << 63U, 0, "x"), std::invalid_argument);
}

TEST_CASE("self: messages that could only wait for ever are errors") {
    self::World world;
    const shardkit::Communicator comm(world);
    std::vector<float> values(3);
    std::vector<float> shorter(2);
    CHECK_THROWS_AS(send(comm, std::span<const float>(values), 0, {}), CommError);
    CHECK_THROWS_AS(receive(comm, std::span<float>(values), 0, {}), CommError);
    CHECK_THROWS_AS(send_receive(comm, std::span<const float>(values), 0, std::span<float>(shorter), 0, {}),
                    CommError);
    CHECK_THROWS_AS(send(comm, std::span<const float>(values), 1, {}), std::invalid_argument);
}

TEST_CASE("self: a rank alone waits for nobody, and takes a Deadline as any other") {
    self::run(DeviceMesh<1>{}, [](auto& rank) {
        const auto phase = rank.deadline(std::chrono::minutes(1));
        CHECK(all_reduce_value(rank, 2.0) == 2.0);
        CHECK_THROWS_AS(static_cast<void>(rank.deadline(std::chrono::milliseconds(-1))), std::invalid_argument);
    });
}

}  // namespace self_test
