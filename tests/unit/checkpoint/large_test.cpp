// SPDX-License-Identifier: Apache-2.0
// A file of more than 2^32 bytes, with a tensor that is longer and one behind it.
#include <shardkit/checkpoint.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <unistd.h>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/sharded/list_shards.hpp>
#include <shardkit/sharded/sharded.hpp>

#include "temporary_folder.hpp"
#include "test_size.hpp"

namespace large_test {

namespace {

namespace sk = shardkit;

constexpr std::size_t rows = (std::size_t{1} << 20U) + 2;
constexpr std::size_t columns = 515;  // 4.02 GiB of fp64
// Frozen and split over tp: each rank has its half, and no gradients.
struct Long : sk::Param<"long", double, rows, columns>, sk::tp::Split<0>, sk::Frozen {};
struct Behind : sk::Param<"behind", double, 5>, sk::Frozen {};
using Group = sk::Params<Long, Behind>;

/// A whole number, another one for most elements.
double value_of(std::size_t element) { return static_cast<double>((element * 2654435761U) >> 12U & 0xFFFFU); }

class InCache : public sk::checkpoint::PosixFiles {
  public:
    int sync(int) override { return 0; }
    int sync_folder(const std::string&) override { return 0; }
};

}  // namespace

TEST_CASE("a file of more than 2^32 bytes is saved by two ranks and loaded by one") {
    const auto memory =
        static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    if (test_size::reduced() || memory < std::uint64_t{16} << 30U) {
        MESSAGE("left out: it needs 16 GiB of memory and a build that is not slow");
        return;
    }
    const temporary_folder::Folder folder;
    InCache calls;
    sk::threads::run(sk::DeviceMesh<1, 2>{}, [&](auto& rank) {
        sk::Sharded<Group, sk::NoShard> layer(rank, "layer");
        layer.initialize([](std::string_view, std::string_view, std::uint64_t i) { return value_of(i); });
        sk::checkpoint::save(rank, folder.file("run"), 1, sk::checkpoint::State{sk::Model{layer}}, {.files = &calls});
    });
    const std::string file = folder.file("run/step-00000001/model.safetensors");
    CHECK(std::filesystem::file_size(file) > (std::uint64_t{1} << 32U) + 5 * sizeof(double));
    const sk::safetensors::File saved(file);
    CHECK(saved.at("layer.long").bytes.size() == rows * columns * sizeof(double));
    CHECK(saved.at("layer.behind").bytes.begin >= std::uint64_t{1} << 32U);
    CHECK(saved.read<double>("layer.behind") ==
          std::vector<double>{value_of(0), value_of(1), value_of(2), value_of(3), value_of(4)});
    std::size_t held = 0;
    std::size_t wrong = 0;
    sk::threads::run(sk::DeviceMesh<1>{}, [&](auto& rank) {
        sk::Sharded<Group, sk::NoShard> layer(rank, "layer");
        sk::checkpoint::load(rank, folder.file("run/step-00000001"), sk::checkpoint::State{sk::Model{layer}},
                             {.files = &calls});
        for (const sk::ShardInfo& shard : layer.shards()) {
            const auto* const values = static_cast<const double*>(shard.data);
            held += shard.range.size();
            for (std::size_t i = 0; i < shard.range.size(); ++i) {
                wrong += values[i] == value_of(shard.range.begin + i) ? 0U : 1U;
            }
        }
    });
    CHECK(held == rows * columns + 5);
    CHECK(wrong == 0);
}

}  // namespace large_test
