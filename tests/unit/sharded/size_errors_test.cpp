// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/self/run.hpp>
#include <shardkit/core/bf16.hpp>
#include <shardkit/machine/group_description.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/sharded/sharded.hpp>
#include <shardkit/step/model.hpp>

#include "../thrown_message.hpp"
#include "../watched_memory.hpp"

namespace size_errors_test {

namespace {

namespace sk = shardkit;

struct Bias : sk::Param<"bias", float, 8> {};
struct Weight : sk::Param<"weight", float, sk::dynamic> {};
struct Short : sk::Param<"short", sk::bf16, sk::dynamic> {};
using Block = sk::Params<Bias, Weight>;

constexpr sk::SourceLocation user{"user.cpp", 7};
constexpr std::size_t largest = ~std::size_t{0};
constexpr std::size_t bit(unsigned n) { return std::size_t{1} << n; }

/// What the error of a group "blocks.3" with a weight of `extent` elements says.
template <class Error, class Policy = sk::NoShard>
std::string refusal(std::size_t extent) {
    return thrown_message<Error>([&] {
        sk::self::run(sk::DeviceMesh<1>{}, [&](auto& rank) {
            const sk::Sharded<Block, Policy> group{rank, "blocks.3", {sk::shape<Weight>(extent)}, {}, user};
        });
    });
}

/// What is said with memory for no large buffer, for one, and so on until a group and its optimizer have them all.
template <class Param, class Policy>
std::vector<std::string> refusals() {
    std::vector<std::string> texts;
    for (std::size_t enough = 0; enough < 20; ++enough) {
        std::size_t left = enough;
        try {
            sk::self::World world;
            const sk::Communicator limited(
                std::make_shared<WatchedVerbs>(world.communicator().verbs(), MemoryWatch{[&left](std::size_t bytes) {
                                                   if (bytes >= 2048 && left-- == 0) { throw std::bad_alloc(); }
                                               }}));
            sk::MeshRank<sk::DeviceMesh<1>> rank{{}, limited};
            sk::Sharded<Param, Policy> group{rank, "blocks.3", sk::shape<Param>(1024)};
            sk::Model model{group};
            const sk::AdamW optimizer{model, {}};
            return texts;
        } catch (const sk::MemoryError& error) { texts.emplace_back(error.what()); }
    }
    return texts;
}

std::string too_large(const std::string& extent, const std::string& shards) {
    return text_at("'blocks.3' parameter 'weight' of shape [" + extent + "]: the group's elements, padded for " +
                       shards + " shards, are more than 1152921504606846975: their bytes overflow 64 bits",
                   user);
}

}  // namespace

TEST_CASE("sizes: extents of zero are refused by path and parameter") {
    const std::string expected = text_at("'blocks.3' parameter 'weight': extent 0 is 0, expected at least 1", user);
    CHECK(refusal<std::invalid_argument>(0) == expected);
    CHECK(thrown_message<std::invalid_argument>([] {
              sk::describe_group<Block, sk::FullShard>("blocks.3", {sk::shape<Weight>(0)}, sk::DeviceMesh<4>{}.grid(),
                                                       sk::FullShard{}, user);
          }) == expected);
}

TEST_CASE("sizes: element and byte counts that overflow are refused by path, parameter and shape") {
    CHECK(refusal<std::length_error>(largest) == too_large("18446744073709551615", "1"));
    CHECK(refusal<std::length_error>(bit(63)) == too_large("9223372036854775808", "1"));
    CHECK(refusal<std::length_error>(bit(62) - 1) == too_large("4611686018427387903", "1"));
    CHECK(refusal<std::length_error>(bit(60)) == too_large("1152921504606846976", "1"));
    CHECK(thrown_message<std::length_error>([] {
              sk::describe_group<Block, sk::FullShard>("blocks.3", {sk::shape<Weight>(largest - 8)},
                                                       sk::DeviceMesh<4>{}.grid(), sk::FullShard{}, user);
          }) == too_large("18446744073709551607", "4"));
    // Anything below is planned, and nothing overflows on the way.
    CHECK(sk::describe_group<Block, sk::FullShard>("blocks.3", {sk::shape<Weight>(bit(60) - 256)},
                                                   sk::DeviceMesh<4>{}.grid())
              .numel == bit(60) - 248);
}

TEST_CASE("sizes: memory that cannot be had names the group, the bytes and the buffer, whichever it is") {
    using Texts = std::vector<std::string>;
    const auto none = [](const char* what) { return std::string("'blocks.3': no memory for ") + what; };
    CHECK(refusals<Weight, sk::NoShard>() == Texts{none("4096 bytes of full parameters"),
                                                   none("4096 bytes of full gradients"),
                                                   none("4096 bytes of exp_avg"), none("4096 bytes of exp_avg_sq")});
    CHECK(refusals<Weight, sk::FullShard>() ==
          Texts{none("4096 bytes of gather buffer"), none("4096 bytes of parameter shard"),
                none("4096 bytes of gradient buffer"), none("4096 bytes of reduced gradients"),
                none("4096 bytes of exp_avg"), none("4096 bytes of exp_avg_sq")});
    CHECK(refusals<Short, sk::NoShard>() ==
          Texts{none("2048 bytes of full parameters"), none("4096 bytes of master weights"),
                none("2048 bytes of full gradients"), none("4096 bytes of reduced gradients"),
                none("4096 bytes of exp_avg"), none("4096 bytes of exp_avg_sq")});
}

}  // namespace size_errors_test
