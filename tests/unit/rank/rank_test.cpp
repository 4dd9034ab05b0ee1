// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/self/run.hpp>
#include <shardkit/backend/threads/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/rank/all_reduce_value.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/verbs/all_gather.hpp>
#include <shardkit/verbs/split.hpp>

#include "../mesh/arange.hpp"
#include "../thrown_message.hpp"

namespace rank_test {

namespace {

using namespace shardkit;
using mesh_oracle::Arange;
using Refused = std::invalid_argument;

/// The world ranks behind a communicator, as its all-gather finds them.
template <class Communicator>
std::vector<std::uint64_t> connected(const Communicator& comm, std::size_t world_rank) {
    const std::uint64_t mine = world_rank;
    std::vector<std::uint64_t> found(comm.size());
    all_gather(comm, std::span<const std::uint64_t>(&mine, 1), std::span(found), {});
    return found;
}

std::vector<std::uint64_t> wide(const std::vector<std::size_t>& ranks) { return {ranks.begin(), ranks.end()}; }

/// What one rank saw of the communicator over one set of axes; compared once all threads have ended.
struct Seen {
    std::string label;
    std::size_t rank = 0;
    std::vector<std::uint64_t> peers;
};
template <class Communicator>
Seen look(const Communicator& comm, std::size_t world_rank) {
    return {std::string(comm.axes()), comm.rank(), connected(comm, world_rank)};
}

template <class... A>
std::vector<std::string_view> names_of(Axes<A...>) {
    return {A::name...};
}

/// sub_mesh<AxisSet> on every rank of the mesh connects the ranks that the written-out arange says, in order.
template <class AxisSet, class Mesh>
void check_sub_mesh(const Mesh& mesh) {
    std::vector<Seen> seen(mesh.size());
    threads::run(mesh, [&](auto& rank) { seen[rank.rank()] = look(rank.sub_mesh(AxisSet{}), rank.rank()); });
    const Arange oracle(mesh.grid());
    for (std::size_t r = 0; r < mesh.size(); ++r) {
        const auto expected = wide(oracle.group(names_of(AxisSet{}), r));
        CHECK(seen[r].peers == expected);
        REQUIRE(seen[r].rank < seen[r].peers.size());
        CHECK(seen[r].peers[seen[r].rank] == r);
    }
}

template <class Mesh>
void check_sub_meshes(const Mesh& mesh) {
    check_sub_mesh<Axes<Dp>>(mesh);
    check_sub_mesh<Axes<Tp>>(mesh);
    check_sub_mesh<Axes<Cp>>(mesh);
    check_sub_mesh<Axes<Dp, Cp>>(mesh);
    check_sub_mesh<Axes<Cp, Dp>>(mesh);
    check_sub_mesh<Axes<Dp, Tp>>(mesh);
    check_sub_mesh<Axes<Tp, Cp>>(mesh);
    check_sub_mesh<Axes<Dp, Tp, Cp>>(mesh);
    check_sub_mesh<Axes<Cp, Tp, Dp>>(mesh);
}

template <class Rank>
std::uint64_t splits(Rank& rank) {
    return rank.traffic().total(Verb::split).calls;
}

/// Splits that `f` costs on each of the mesh's ranks; REQUIREd to be the same everywhere.
template <class Mesh, class F>
std::uint64_t splits_of(const Mesh& mesh, F f) {
    std::vector<std::uint64_t> counts(mesh.size());
    threads::run(mesh, [&](auto& rank) {
        f(rank);
        counts[rank.rank()] = splits(rank);
    });
    for (const std::uint64_t count : counts) { REQUIRE(count == counts[0]); }
    return counts[0];
}

/// A user's own axis.
struct Pp {
    static constexpr std::string_view name = "pp";
};

static_assert(!std::is_copy_constructible_v<Rank> && !std::is_move_constructible_v<Rank>);

}  // namespace

TEST_CASE("Rank: sub-meshes of one and of several axes connect the right ranks") {
    check_sub_meshes(DeviceMesh<2, 2, 2>{});
    check_sub_meshes(DeviceMesh<3, 1, 2>{});
    check_sub_meshes(DeviceMesh<4, 2, 1>{});
    check_sub_meshes(DeviceMesh<2, 2, 2, RankOrder<Tp, Cp, Dp>>{});
    check_sub_meshes(DeviceMesh<dynamic, dynamic, 1, RankOrder<Cp, Dp, Tp>>{3, 2});
}

TEST_CASE("Rank: the halves of a split data axis connect the right ranks") {
    struct Case {
        std::size_t dp, tp, cp, group;
    };
    for (const Case c : {Case{4, 1, 1, 2}, Case{4, 1, 2, 2}, Case{6, 1, 1, 3}, Case{4, 2, 1, 4}, Case{2, 2, 2, 1}}) {
        CAPTURE(c.dp);
        CAPTURE(c.group);
        const DeviceMesh mesh(c.dp, c.tp, c.cp);
        std::vector<std::vector<Seen>> seen(mesh.size());
        threads::run(mesh, [&](auto& rank) {
            auto& mine = seen[rank.rank()];
            mine.push_back(look(rank.template communicator<Axes<DpShard>>(c.group), rank.rank()));
            mine.push_back(look(rank.template communicator<Axes<DpReplicate>>(c.group), rank.rank()));
            mine.push_back(look(rank.template communicator<Axes<DpShard, Cp>>(c.group), rank.rank()));
            mine.push_back(look(rank.template communicator<Axes<DpReplicate, Cp>>(c.group), rank.rank()));
            mine.push_back(look(rank.template communicator<DataAxes>(c.group), rank.rank()));
        });
        const Arange oracle({"dp_replicate", "dp_shard", "tp", "cp"}, {c.dp / c.group, c.group, c.tp, c.cp});
        for (std::size_t r = 0; r < mesh.size(); ++r) {
            REQUIRE(seen[r].size() == 5);
            CHECK(seen[r][0].peers == wide(oracle.group({"dp_shard"}, r)));
            CHECK(seen[r][1].peers == wide(oracle.group({"dp_replicate"}, r)));
            CHECK(seen[r][2].peers == wide(oracle.group({"dp_shard", "cp"}, r)));
            CHECK(seen[r][3].peers == wide(oracle.group({"dp_replicate", "cp"}, r)));
            CHECK(seen[r][4].peers == wide(oracle.group({"dp_replicate", "dp_shard", "cp"}, r)));
        }
    }
}

TEST_CASE("Rank: communicators carry the label of their axes") {
    threads::run(DeviceMesh<4, 1, 2>{}, [](auto& rank) {
        const auto expect = [](std::string_view label, std::string_view expected) {
            if (label != expected) { throw std::logic_error(detail::concat(label, ", expected ", expected)); }
        };
        expect(rank.world().axes(), "world");
        expect(rank.template sub_mesh<Axes<Dp>>().axes(), "dp");
        expect(rank.template sub_mesh<Axes<Dp, Cp>>().axes(), "dp x cp");
        expect(rank.template sub_mesh<Axes<Tp>>().axes(), "self");
        expect(rank.template communicator<Axes<DpShard>>(4).axes(), "dp");
        expect(rank.template communicator<Axes<DpShard>>(2).axes(), "dp_shard");
        expect(rank.template communicator<Axes<DpReplicate>>(2).axes(), "dp_replicate");
        expect(rank.template communicator<Axes<DpReplicate, Cp>>(2).axes(), "dp_replicate x cp");
        expect(rank.template communicator<DataAxes>(2).axes(), "dp x cp");
        // An alias of a group that exists under another name answers to the name it was asked for by.
        expect(rank.template communicator<Axes<DpShard>>(4).axes(), "dp");
        expect(rank.world().axes(), "world");
    });
}

TEST_CASE("Rank: what equals the world, or was made before, is not split again") {
    // One axis: the data axis is the world.
    CHECK(splits_of(DeviceMesh<4>{}, [](auto& rank) {
              rank.template sub_mesh<Axes<Dp>>();
              rank.template sub_mesh<Axes<Dp, Tp, Cp>>();
              rank.template communicator<Axes<DpShard>>(4);
              rank.template communicator<Axes<DpShard, Cp>>(4);
              rank.template communicator<DataAxes>(2);
          }) == 0);
    // Every group of a rank alone is the same group, whatever its axes.
    CHECK(splits_of(DeviceMesh<4>{}, [](auto& rank) {
              rank.template communicator<Axes<DpReplicate>>(4);
              rank.template communicator<Axes<DpReplicate, Cp>>(4);
              rank.template communicator<Axes<DpShard>>(1);
              rank.template sub_mesh<Axes<Tp>>();
              rank.template sub_mesh<Axes<Cp>>();
          }) == 1);
    // Repeated use is free; a different order of the axes is another group.
    const DeviceMesh<2, 1, 2> plane;
    CHECK(splits_of(plane, [](auto& rank) { rank.template sub_mesh<Axes<Dp>>(); }) == 1);
    CHECK(splits_of(plane, [](auto& rank) {
              for (int i = 0; i < 5; ++i) { rank.template sub_mesh<Axes<Dp>>(); }
          }) == 1);
    CHECK(splits_of(plane, [](auto& rank) {
              rank.template sub_mesh<Axes<Dp>>();
              rank.template communicator<Axes<DpShard>>(2);
              rank.template communicator<Axes<DpReplicate>>(1);
          }) == 1);
    CHECK(splits_of(plane, [](auto& rank) {
              rank.template sub_mesh<Axes<Dp>>();
              rank.template sub_mesh<Axes<Cp>>();
              rank.template sub_mesh<Axes<Dp, Cp>>();
          }) == 2);
    CHECK(splits_of(plane, [](auto& rank) {
              rank.template sub_mesh<Axes<Dp, Cp>>();
              rank.template sub_mesh<Axes<Cp, Dp>>();
          }) == 1);
    // Hybrid: shards, replicas; the data axes together are the world.
    CHECK(splits_of(DeviceMesh<4>{}, [](auto& rank) {
              for (int i = 0; i < 3; ++i) {
                  rank.template communicator<Axes<DpShard>>(2);
                  rank.template communicator<Axes<DpReplicate, Cp>>(2);
                  rank.template communicator<DataAxes>(2);
              }
          }) == 2);
}

TEST_CASE("Rank: one rank splits nothing and leaves no traffic") {
    self::run(DeviceMesh<1, 1, 1>{}, [](auto& rank) {
        CHECK(rank.template communicator<Axes<DpShard>>(1).axes() == "self");
        CHECK(rank.template sub_mesh<Axes<Dp, Cp>>().size() == 1);
        CHECK(rank.traffic().entries().empty());
    });
}

TEST_CASE("Rank: a world of another size than the mesh's is an error that names both") {
    self::World world;
    CHECK_INVALID_ARGUMENT((MeshRank<DeviceMesh<2, 3, 1>>(DeviceMesh<2, 3, 1>{}, shardkit::Communicator(world))),
                           "mesh dp=2 tp=3 cp=1 has 6 ranks, but the self world has 1");
    CHECK_INVALID_ARGUMENT(self::run(DeviceMesh(4), [](auto&) {}),
                           "mesh dp=4 tp=1 cp=1 has 4 ranks, but the self world has 1");
    const auto on_four = [](const shardkit::Communicator& three, SourceLocation where) {
        MeshRank<DeviceMesh<2, 1, 2>>(DeviceMesh<2, 1, 2>{}, three, {}, {}, where);
    };
    const SourceLocation here{__FILE__, __LINE__};
    CHECK(thrown_message<Refused>([&] {
              threads::launch(3, [&](const shardkit::Communicator& three) { on_four(three, here); });
          }) == text_at("mesh dp=2 tp=1 cp=2 has 4 ranks, but the threads world has 3", here));
}

TEST_CASE("Rank: refused options and groups") {
    CHECK_INVALID_ARGUMENT(self::run(DeviceMesh<1>{}, [](auto&) {}, {.in_flight = 0}),
                           "RankOptions: in_flight is 0, expected at least 1");
    CHECK_INVALID_ARGUMENT(threads::run(DeviceMesh<2>{}, [](auto&) {}, {.in_flight = 0}),
                           "RankOptions: in_flight is 0, expected at least 1");
    CHECK_INVALID_ARGUMENT(
        threads::run(DeviceMesh<4>{}, [](auto& rank) { rank.template communicator<Axes<DpShard>>(3); }),
        "mesh dp=4 tp=1 cp=1: groups of 3 do not divide dp = 4");
    CHECK_INVALID_ARGUMENT(threads::run(DeviceMesh<2>{}, [](auto& rank) { rank.template sub_mesh<Axes<DpShard>>(); }),
                           "mesh dp=2 tp=1 cp=1: no axis dp_shard");
}

TEST_CASE("Rank: a rank's own view") {
    threads::run(DeviceMesh<3, 1, 2>{},
                 [](auto& rank) {
                     static_assert(std::is_same_v<std::remove_cvref_t<decltype(rank.mesh())>, DeviceMesh<3, 1, 2>>);
                     const bool right = rank.world_size() == 6 && rank.rank() == rank.world().rank() &&
                                        rank.grid().describe() == "dp=3 tp=1 cp=2" && rank.options().in_flight == 5 &&
                                        rank.mesh().size() == 6 && &rank.traffic() == &rank.world().traffic();
                     if (!right) { throw std::logic_error("a rank disagrees with its mesh"); }
                 },
                 {.in_flight = 5});
}

TEST_CASE("Rank: the user's own axis on a mesh of four") {
    const AxisGrid grid{{"pp", 2}, {"dp", 2}, {"tp", 1}, {"cp", 2}};
    std::vector<std::vector<Seen>> seen(grid.size());
    threads::launch(grid.size(), [&](const shardkit::Communicator& world) {
        Rank rank(grid, world, {});
        auto& mine = seen[world.rank()];
        mine.push_back(look(rank.sub_mesh<Axes<Pp>>(), world.rank()));
        mine.push_back(look(rank.sub_mesh<Axes<Pp, Cp>>(), world.rank()));
        mine.push_back(look(rank.communicator<DataAxes>(2), world.rank()));
    });
    const Arange oracle(grid);
    for (std::size_t r = 0; r < grid.size(); ++r) {
        REQUIRE(seen[r].size() == 3);
        CHECK(seen[r][0].label == "pp");
        CHECK(seen[r][0].peers == wide(oracle.group({"pp"}, r)));
        CHECK(seen[r][1].label == "pp x cp");
        CHECK(seen[r][1].peers == wide(oracle.group({"pp", "cp"}, r)));
        CHECK(seen[r][2].peers == wide(oracle.group({"dp", "cp"}, r)));
    }
}

namespace {

int kept_alive = 0;

/// One of two types that differ in nothing but their number.
template <int Number>
struct KeptThing {
    std::size_t rank;
    explicit KeptThing(Rank& of) : rank(of.rank()) { ++kept_alive; }
    KeptThing(const KeptThing&) = delete;
    KeptThing& operator=(const KeptThing&) = delete;
    ~KeptThing() { --kept_alive; }
};

}  // namespace

TEST_CASE("Rank: what is kept is made once for each type, from the rank, and freed with it") {
    self::run(DeviceMesh<1>{}, [](Rank& rank) {
        auto& first = rank.template kept<KeptThing<1>>();
        CHECK(first.rank == 0);
        first.rank = 7;
        auto& second = rank.template kept<KeptThing<2>>();
        CHECK(second.rank == 0);
        CHECK(&rank.template kept<KeptThing<1>>() == &first);
        CHECK(&rank.template kept<KeptThing<2>>() == &second);
        CHECK(first.rank == 7);
        CHECK(kept_alive == 2);
    });
    CHECK(kept_alive == 0);
}

TEST_CASE("Rank: an adopted communicator serves its sub-mesh, and no other is made") {
    threads::run(DeviceMesh{2, 1, 3}, [](auto& rank) {
        const std::size_t cp = rank.rank() % 3;
        const std::size_t dp = rank.rank() / 3;
        const auto mine = split(rank.world(), cp, dp, "mine");
        rank.adopt(Axes<Dp>{}, mine);
        const std::uint64_t splits = rank.traffic().total(Verb::split).calls;
        const auto used = rank.template sub_mesh<Axes<Dp>>();
        CHECK(rank.traffic().total(Verb::split).calls == splits);
        CHECK(used.axes() == "dp");
        CHECK(connected(used, rank.rank()) == std::vector<std::uint64_t>{cp, cp + 3});
        // An axis that was not adopted is made as ever.
        CHECK(connected(rank.template sub_mesh<Axes<Cp>>(), rank.rank()) ==
              std::vector<std::uint64_t>{3 * dp, 3 * dp + 1, 3 * dp + 2});
        CHECK(rank.traffic().total(Verb::split).calls == splits + 1);
    });
}

TEST_CASE("Rank: an adopted communicator of the wrong size, order or ranks is refused") {
    threads::run(DeviceMesh{4}, [](auto& rank) {
        const auto half = split(rank.world(), rank.rank() / 2, rank.rank(), "half");
        const std::string size = thrown_message<Refused>([&] { rank.adopt(Axes<Dp>{}, half); });
        CHECK(size.find("adopt over dp: the communicator has 2 ranks and this is its rank " +
                        std::to_string(rank.rank() % 2) + ", expected 4 ranks and rank " +
                        std::to_string(rank.rank())) == 0);
        const auto reversed = split(rank.world(), 0, 3 - rank.rank(), "reversed");
        const std::string order = thrown_message<Refused>([&] { rank.adopt(Axes<Dp>{}, reversed); });
        CHECK(order.find("this is its rank " + std::to_string(3 - rank.rank()) + ", expected 4 ranks and rank " +
                         std::to_string(rank.rank())) != std::string::npos);
    });
    threads::run(DeviceMesh<2, 2>{}, [](auto& rank) {  // dp is over ranks 0 and 2, and over 1 and 3
        const std::size_t r = rank.rank();
        const auto crossed = split(rank.world(), r == 0 || r == 3 ? 0 : 1, r, "crossed");
        const std::string ranks = thrown_message<Refused>([&] { rank.adopt(Axes<Dp>{}, crossed); });
        CHECK(ranks.find(std::string("adopt over dp: the communicator is of the world's ranks ") +
                         (r == 0 || r == 3 ? "0, 3" : "1, 2") + ", expected " + (r % 2 == 0 ? "0, 2" : "1, 3")) == 0);
    });
}

void throw_size(Rank& rank) { throw std::logic_error(std::to_string(rank.world_size())); }

/// A trainer's own function of that name.
template <class Rank>
std::size_t run(Rank& rank, const std::size_t& times) {
    return rank.world_size() * times;
}

TEST_CASE("a trainer's own run(rank, ...) is not taken for the engine's, which the rank's type brings") {
    std::size_t times = 3;  // not const: the engine's would take it as it is
    self::run(DeviceMesh<1>{}, [&](auto& rank) { CHECK(run(rank, times) == 3); });
    threads::run(DeviceMesh<2>{}, [&](auto& rank) { CHECK(run(rank, times) == 6); });
}

TEST_CASE("Rank: a function that takes it is run, and one is made from a mesh as from its axes") {
    std::array<bool, 2> mesh_known{};
    threads::run(DeviceMesh<2>{}, [&](Rank& rank) {
        const Rank again{DeviceMesh<2>{}, rank.world()};
        mesh_known[rank.rank()] = again.grid().describe() == rank.grid().describe() && again.rank() == rank.rank();
    });
    CHECK(mesh_known[0]);
    CHECK(mesh_known[1]);
    CHECK_THROWS_WITH(self::run(DeviceMesh<1>{}, throw_size), "1");
}

TEST_CASE("all_reduce_value: one number of each rank, over all ranks or some") {
    threads::run(DeviceMesh<3, 2>{}, [](auto& rank) {
        const auto own = static_cast<double>(rank.rank());
        CHECK(all_reduce_value(rank, own + 0.5) == 18);
        CHECK(all_reduce_value(rank, own, ReduceOp::max) == 5);
        CHECK(all_reduce_value(rank, own, ReduceOp::min) == 0);
        const auto tp = rank.sub_mesh(Axes<Tp>{});
        double of_peers = 0;
        for (const std::uint64_t peer : connected(tp, rank.rank())) { of_peers += static_cast<double>(peer); }
        CHECK(all_reduce_value(rank, tp, own) == of_peers);
    });
}

}  // namespace rank_test
