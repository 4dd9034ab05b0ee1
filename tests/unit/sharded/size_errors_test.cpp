// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <new>
#include <span>
#include <stdexcept>
#include <string>

#include <doctest/doctest.h>

#include <shardkit/backend/self/run.hpp>
#include <shardkit/backend/threads/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/plan/group_description.hpp>
#include <shardkit/policy/full_shard.hpp>
#include <shardkit/policy/no_shard.hpp>
#include <shardkit/policy/shard_grad_op.hpp>
#include <shardkit/sharded/groups.hpp>
#include <shardkit/sharded/sharded.hpp>

#include "../thrown_message.hpp"

namespace {

namespace sk = shardkit;

struct Bias : sk::Param<"bias", float, 8> {};
struct Weight : sk::Param<"weight", float, sk::dynamic> {};
using Block = sk::Params<Bias, Weight>;

constexpr std::size_t largest = ~std::size_t{0};
constexpr std::size_t bit(unsigned n) { return std::size_t{1} << n; }

/// What the error of a group "blocks.3" with a weight of `extent` elements says.
template <class Error, class Policy = sk::NoShard>
std::string refusal(std::size_t extent) {
    return thrown_message<Error>([&] {
        sk::self::run(sk::DeviceMesh<1>{}, [&](auto& rank) {
            const sk::Sharded<Block, Policy, sk::self::Engine> group{rank, "blocks.3", {sk::shape<Weight>(extent)}};
        });
    });
}

std::string too_large(const std::string& extent, const std::string& shards) {
    return "'blocks.3' parameter 'weight' of shape [" + extent + "]: the group's elements, padded for " + shards +
           " shards, are more than 1152921504606846975: their bytes overflow 64 bits";
}

}  // namespace

TEST_CASE("sizes: extents of zero are refused by path and parameter") {
    const std::string expected = "'blocks.3' parameter 'weight': extent 0 is 0, expected at least 1";
    CHECK(refusal<std::invalid_argument>(0) == expected);
    CHECK(thrown_message<std::invalid_argument>([] {
              sk::describe_group<Block, sk::FullShard>("blocks.3", {sk::shape<Weight>(0)},
                                                       sk::DeviceMesh<4>{}.grid());
          }) == expected);
}

TEST_CASE("sizes: element and byte counts that overflow are refused by path, parameter and shape") {
    CHECK(refusal<std::length_error>(largest) == too_large("18446744073709551615", "1"));
    CHECK(refusal<std::length_error>(bit(63)) == too_large("9223372036854775808", "1"));
    CHECK(refusal<std::length_error>(bit(62) - 1) == too_large("4611686018427387903", "1"));
    CHECK(refusal<std::length_error>(bit(60)) == too_large("1152921504606846976", "1"));
    CHECK(thrown_message<std::length_error>([] {
              sk::describe_group<Block, sk::FullShard>("blocks.3", {sk::shape<Weight>(largest - 8)},
                                                       sk::DeviceMesh<4>{}.grid());
          }) == too_large("18446744073709551607", "4"));
    // Anything below is planned, and nothing overflows on the way.
    CHECK(sk::describe_group<Block, sk::FullShard>("blocks.3", {sk::shape<Weight>(bit(60) - 256)},
                                                   sk::DeviceMesh<4>{}.grid())
              .numel == bit(60) - 248);
}

TEST_CASE("sizes: memory that cannot be had names the group, the bytes and the buffer") {
    // 128 TiB of fp32: more than an address space holds, so that nothing is taken.
    constexpr std::size_t extent = bit(45);
    const std::string bytes = std::to_string(4 * (extent + 32));
    const std::string none = "'blocks.3': no memory for ";
    CHECK(refusal<sk::MemoryError>(extent) == none + bytes + " bytes of full parameters");
    CHECK(refusal<sk::MemoryError, sk::FullShard>(extent) == none + bytes + " bytes of gather buffer");
    CHECK(refusal<std::bad_alloc>(extent) == none + bytes + " bytes of full parameters");

    // The parameters are there already, as the user's; their gradients and states are not.
    sk::self::run(sk::DeviceMesh<1>{}, [&](auto& rank) {
        using Group = sk::Sharded<Weight, sk::NoShard, sk::self::Engine>;
        float element = 0;  // never touched beyond
        const std::span<float> parameters(&element, extent);
        const std::string of_weight = none + std::to_string(4 * extent) + " bytes of ";
        CHECK(thrown_message<sk::MemoryError>([&] {
                  Group::adopt(rank, "blocks.3", sk::shape<Weight>(extent), {parameters, {}});
              }) == of_weight + "full gradients");
        Group group = Group::adopt(rank, "blocks.3", sk::shape<Weight>(extent), {parameters, parameters});
        auto model = sk::groups(group);
        CHECK(thrown_message<sk::MemoryError>([&] {
                  const sk::AdamW optimizer{model, {}};
              }) == of_weight + "exp_avg");
    });
}

TEST_CASE("sizes: on several ranks the error is the same, and the run ends with it") {
    const std::string message = thrown_message<sk::MemoryError>([] {
        sk::threads::run(sk::DeviceMesh<2>{}, [](auto& rank) {
            const sk::Sharded<Block, sk::ShardGradOp, sk::threads::Engine> group{
                rank, "blocks.3", {sk::shape<Weight>(bit(46))}};
        });
    });
    CHECK(message.find("'blocks.3': no memory for ") == 0);
    CHECK(message.find(" bytes of ") != std::string::npos);
}
