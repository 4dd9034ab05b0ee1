// SPDX-License-Identifier: Apache-2.0
// The ranks that are left go on without those that are lost.
#include <shardkit/backend/nccl/native.hpp>
#include <shardkit/checkpoint.hpp>

#include <array>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/sharded/sharded.hpp>
#include <shardkit/step/accumulation.hpp>
#include <shardkit/step/reduce.hpp>
#include <shardkit/verbs/split.hpp>

#include "../../thrown_message.hpp"
#include "../verb_checks.hpp"
#include "gpu_ranks.hpp"
#include "offload_trainer.hpp"
#include "temporary_folder.hpp"
#include "test_size.hpp"

namespace survivors_test {

namespace {

using namespace shardkit;
using namespace verb_checks;
using gpu_ranks::Comm;
using rank_checks::contains;
using rank_checks::Kind;

constexpr std::size_t ranks = 4;

nccl::Options survivable() {
    nccl::Options options = gpu_ranks::impatient();
    options.survivable = true;
    return options;
}

void copy_out(nccl::World& world, const float* from, std::vector<float>& to) {
    const shardkit::gpu::TimelineRef stream(world.streams().compute);
    gpu::detail::check(
        cudaMemcpyAsync(to.data(), from, to.size() * sizeof(float), cudaMemcpyDeviceToHost, stream.native()),
        "cudaMemcpyAsync");
    REQUIRE(cudaStreamSynchronize(stream.native()) == cudaSuccess);
}

/// Ranks 1 and 2 die in a sum, while another one is under way over a communicator that was split off; the others
/// shrink their World and use the new one.
void check_survivors(standin::Pace pace) {
    gpu_ranks::restart(pace);
    standin::set_in_progress_polls(3);
    const nccl::UniqueId id = nccl::UniqueId::create();
    std::array<std::size_t, ranks> places{};
    const auto outcomes = gpu_ranks::each_in_a_thread(ranks, [&](std::size_t rank) {
        nccl::World world(id, ranks, rank, survivable());
        const Comm comm(world);
        const Comm reversed = split(comm, 0, ranks - rank, "reversed");
        check_all_reduce<float, float>(comm, 1000, 1);
        if (rank == 1 || rank == 2) {
            standin::kill_rank(nccl::native(comm));
            standin::kill_rank(nccl::native(reversed));
            throw rank_checks::Planted("gone");
        }
        CHECK(contains(thrown_message<CommError>([&] { check_all_reduce<float, float>(reversed, 1000, 1); }),
                       gpu_ranks::after_short_timeout));
        CHECK(nccl::native(comm) != nullptr);
        CHECK(nccl::native(reversed) == nullptr);

        const std::array<std::size_t, 2> lost{2, 1};
        nccl::World left(nccl::Survivors{world, lost}, gpu_ranks::patient());
        const Comm fewer(left);
        REQUIRE(fewer.size() == 2);
        places[rank] = fewer.rank();
        CHECK(left.device() == static_cast<int>(rank));
        check_all_reduce<float, float>(fewer, 1000, 1);
        const Comm again = split(fewer, 0, 1 - fewer.rank(), "again");
        check_all_reduce<double, double>(again, 77, 2);
        CHECK_THROWS_AS(barrier(comm, world.streams().communication), CommError);
        left.finish();
    });
    CHECK(outcomes[0].text == "");
    CHECK(outcomes[3].text == "");
    CHECK(outcomes[1].kind == Kind::planted);
    CHECK(outcomes[2].kind == Kind::planted);
    CHECK(places == std::array<std::size_t, ranks>{0, 0, 0, 1});
    CHECK(standin::calls("ncclCommShrink") == 2);
    CHECK(standin::calls("ncclCommRevoke") == 2);
    CHECK(standin::hangs() == 0);
    CHECK(standin::live() == standin::Live{});
}

struct Weight : Param<"weight", float, 37> {};
struct Bias : Param<"bias", float, 5> {};
using Layer = Sharded<Params<Weight, Bias>, FullShard>;

/// Trains from the newest step in `folder` to step `to`; saves() says after which steps it saves, and before(step) is
/// called before each. Returns the parameters.
template <class Saves, class Before>
std::vector<float> train_on(const Comm& comm, nccl::World& world, const std::string& folder, std::uint64_t to,
                            const Saves& saves, const Before& before) {
    const DeviceMesh mesh{comm.size()};
    MeshRank<DeviceMesh<dynamic>> rank(mesh, comm, {}, world.streams());
    Layer layer(rank, "layer");
    layer.initialize([](auto, auto, std::uint64_t i) { return static_cast<double>(i % 7) / 8; });
    Model model{layer};
    AdamW optimizer{model, {.learning_rate = 0.125}};
    const checkpoint::State state{model, optimizer};
    std::uint64_t step = 0;
    if (const auto found = checkpoint::latest(rank, folder)) {
        step = checkpoint::load(rank, found->path, state).step;
    }
    for (; step < to; ++step) {
        before(step);
        Accumulation accumulation{model};
        auto window = layer.unshard();
        auto gradients = accumulation.gradients(layer);
        for (std::size_t p = 0; p < 2; ++p) {
            const auto values = window.view(p);
            const auto into = gradients.view(p);
            const std::span<float> all(into.data(), into.size());
            using Kernels = shardkit::host::AnyKernels;
            Kernels::fill(rank.compute_stream(), all, static_cast<float>(rank.rank() + step) / 4);
            Kernels::accumulate(rank.compute_stream(), std::span<const float>(values.data(), values.size()), all);
        }
        layer.reshard(std::move(window));
        accumulation.add(std::move(gradients));
        optimizer.step(std::move(accumulation), {.max_norm = 1.0});
        if (saves(step + 1)) { checkpoint::save(rank, folder, step + 1, state); }
    }
    std::vector<float> values(42);
    layer.read_full(Weight{}, std::span(values).first(37));
    layer.read_full(Bias{}, std::span(values).last(5));
    return values;
}

/// What a rank has under way when it leaves by a CommError, beside its groups.
struct UnderWay {
    Offload offload = Offload::none;
    bool saves = false;
};
/// Three steps, and a save that is written beside the second one.
void train(nccl::World& world, const UnderWay& what, const std::string& folder) {
    const DeviceMesh mesh{world.state().world_group().size};
    MeshRank<DeviceMesh<dynamic>> rank(mesh, Comm(world), {.offload_slot_bytes = least_offload_slot_bytes},
                                       world.streams());
    offload_trainer::Trainer<bf16, StateFormat::full> trainer(rank, {}, what.offload);
    trainer.step(0);
    std::optional<checkpoint::PendingSave> pending;
    if (what.saves) { pending.emplace(checkpoint::begin_save(rank, folder, 1, *trainer.state, {.replace = true})); }
    trainer.step(1);
    if (pending) { std::move(*pending).commit(); }
    trainer.step(2);
    static_cast<void>(trainer.bits());
}
/// Rank 1 of three dies at each of its calls of NCCL; the others leave what they have under way without a wait for
/// what hangs, and go on together unless NCCL refuses to revoke. Returns the number of its calls.
std::size_t check_leaving(const UnderWay& what, bool revokes, std::size_t stride) {
    const temporary_folder::Folder folder;
    for (std::size_t call = 0;; call += stride) {
        CAPTURE(call);
        gpu_ranks::restart();
        standin::set_patience(std::chrono::seconds(rank_checks::sanitized ? 40 : 8));
        for (const int survivor : {0, 2}) {
            if (!revokes) { standin::fail_next("ncclCommRevoke", ncclSystemError, survivor); }
        }
        const nccl::UniqueId id = nccl::UniqueId::create();
        std::array<bool, 3> failed{};
        std::barrier left_by_all(3);
        const auto outcomes = gpu_ranks::each_in_a_thread(3, [&](std::size_t rank) {
            nccl::Options options = survivable();
            options.timeout = gpu_ranks::short_timeout / 2;
            nccl::World world(id, 3, rank, options);
            if (rank == 1) { standin::kill_device_at(1, call); }
            try {
                train(world, what, folder.path());
            } catch (const CommError&) { failed[rank] = true; }
            left_by_all.arrive_and_wait();  // the launcher has found out
            const bool lives = standin::lives(1);
            left_by_all.arrive_and_wait();  // before it may end in its `finish`
            if (lives) { return world.finish(); }
            if (rank == 1) { return; }
            const std::array<std::size_t, 1> lost{1};
            const auto survive = [&] {
                nccl::World left(nccl::Survivors{world, lost}, gpu_ranks::patient());
                check_all_reduce<float, float>(Comm(left), 100, 1);
                left.finish();
            };
            if (revokes) { return survive(); }
            if (failed[rank]) { CHECK_THROWS_AS(survive(), CommError); }
        });
        CHECK(standin::hangs() == 0);
        CHECK(outcomes[0].text == "");
        CHECK(outcomes[2].text == "");
        if (standin::lives(1)) { return call; }
    }
}

}  // namespace

TEST_CASE("nccl: survivors leave by the error at once, whatever they have under way, and go on") {
    const std::size_t stride = test_size::reduced() ? 9 : 2;
    for (const UnderWay& what : {UnderWay{}, UnderWay{Offload::states}, UnderWay{Offload::update},
                                 UnderWay{Offload::none, true}, UnderWay{Offload::update, true}}) {
        CAPTURE(static_cast<int>(what.offload));
        CAPTURE(what.saves);
        CHECK(check_leaving(what, true, stride) > 20);
    }
}

TEST_CASE("nccl: a survivor may come as late as the new World's timeout allows, whatever the old one's was") {
    gpu_ranks::restart();
    const nccl::UniqueId id = nccl::UniqueId::create();
    const auto outcomes = gpu_ranks::each_in_a_thread(3, [&](std::size_t rank) {
        nccl::Options options = survivable();
        options.timeout = gpu_ranks::short_timeout;
        nccl::World world(id, 3, rank, options);
        if (rank == 1) { return standin::kill_rank(nccl::native(Comm(world))); }
        if (rank == 2) { std::this_thread::sleep_for(3 * gpu_ranks::short_timeout); }
        const std::array<std::size_t, 1> lost{1};
        nccl::World left(nccl::Survivors{world, lost}, gpu_ranks::patient());
        check_all_reduce<float, float>(Comm(left), 100, 1);
        left.finish();
    });
    CHECK(outcomes[0].text == "");
    CHECK(outcomes[2].text == "");
}

TEST_CASE("nccl: so do those of an NCCL that fails to revoke, whose World then ends with its communicator") {
    const std::size_t stride = test_size::reduced() ? 11 : 5;
    for (const UnderWay& what : {UnderWay{Offload::states}, UnderWay{Offload::update, true}}) {
        CAPTURE(static_cast<int>(what.offload));
        CHECK(check_leaving(what, false, stride) > 20);
    }
}

TEST_CASE("nccl: survivors load the last checkpoint, and go on with the bits of fewer ranks that begin with it") {
    const temporary_folder::Folder temporary;
    const std::string folder = temporary.file("run");
    gpu_ranks::restart();
    const nccl::UniqueId id = nccl::UniqueId::create();
    std::array<std::vector<float>, ranks> values;
    const auto never = [](std::uint64_t) { return false; };
    const auto nothing = [](std::uint64_t) {};
    const auto outcomes = gpu_ranks::each_in_a_thread(ranks, [&](std::size_t rank) {
        nccl::Options options = survivable();
        options.timeout = std::chrono::seconds(2);
        nccl::World world(id, ranks, rank, options);
        const auto dies = [&](std::uint64_t step) {
            if (rank != 1 || step != 3) { return; }
            standin::kill_rank(nccl::native(Comm(world)));
            throw rank_checks::Planted("gone");
        };
        const auto train = [&] {
            train_on(
                Comm(world), world, folder, 6, [](std::uint64_t step) { return step <= 2; }, dies);
        };
        if (rank == 1) { return train(); }
        CHECK_THROWS_AS(train(), CommError);
        const std::array<std::size_t, 1> lost{1};
        nccl::World left(nccl::Survivors{world, lost}, gpu_ranks::patient());
        values[rank] = train_on(Comm(left), left, folder, 6, never, nothing);
        left.finish();
    });
    for (const std::size_t rank : {0U, 2U, 3U}) { CHECK(outcomes[rank].text == ""); }
    CHECK(outcomes[1].kind == Kind::planted);

    std::vector<float> expected;
    std::vector<float> of_four;
    const auto run = [&](std::size_t size, std::vector<float>& into) {
        CHECK(gpu_ranks::first_error(
                  gpu_ranks::with_world(size, gpu_ranks::patient(), [&](const Comm& comm, nccl::World& world) {
                      const auto got = train_on(comm, world, folder, 6, never, nothing);
                      if (comm.rank() == 0) { into = got; }
                  })) == "");
    };
    run(3, expected);
    run(4, of_four);
    CHECK(expected.size() == 42);
    CHECK(expected != of_four);
    for (const std::size_t rank : {0U, 2U, 3U}) { CHECK(values[rank] == expected); }
    CHECK(standin::live() == standin::Live{});
}

TEST_CASE(
    "nccl: a launch that a dead peer blocks ends in a survivable World too, which survives where NCCL can revoke") {
    for (const bool revokes : {false, true}) {
        CAPTURE(revokes);
        gpu_ranks::restart();
        if (!revokes) { standin::fail_next("ncclCommRevoke", ncclSystemError); }
        standin::set_launch_queue(100);
        const nccl::UniqueId id = nccl::UniqueId::create();
        const auto outcomes = gpu_ranks::each_in_a_thread(2, [&](std::size_t rank) {
            nccl::World world(id, 2, rank, survivable());
            const Comm comm(world);
            check_all_reduce<float, float>(comm, 1000, 1);
            if (rank == 1) {
                standin::kill_rank(nccl::native(comm));
                throw rank_checks::Planted("gone");
            }
            auto values = world.communicator().buffer<float>(100);
            const shardkit::gpu::TimelineRef stream(world.streams().communication);
            while (standin::all_live(nccl::native(comm))) { std::this_thread::yield(); }
            all_reduce_in_place(comm, ReduceOp::sum, values.span(), stream);
            for (int i = 0; i < 1000; ++i) {
                gpu::detail::check(cudaMemsetAsync(values.data(), 0, 4, stream.native()), "cudaMemsetAsync");
            }
            const auto survive = [&] {
                const std::array<std::size_t, 1> lost{1};
                nccl::World left(nccl::Survivors{world, lost}, gpu_ranks::patient());
                check_all_reduce<float, float>(Comm(left), 1000, 1);
                left.finish();
            };
            if (revokes) {
                CHECK_NOTHROW(survive());
            } else {
                CHECK_THROWS_AS(survive(), CommError);
            }
            CHECK(
                contains(thrown_message<CommError>([&] { barrier(comm, stream); }), gpu_ranks::after_short_timeout));
        });
        CHECK(outcomes[0].text == "");
        CHECK(standin::hangs() == 0);
        CHECK(standin::live().communicators == 0);
    }
}

TEST_CASE("nccl: after a failure the ranks that are left make a World of their own") {
    for (const standin::Pace pace : gpu_ranks::paces) {
        CAPTURE(static_cast<int>(pace));
        check_survivors(pace);
    }
}

TEST_CASE("nccl: ranks may go without a failure, and what they held can be copied out of the old World") {
    gpu_ranks::restart();
    const nccl::UniqueId id = nccl::UniqueId::create();
    const auto outcomes = gpu_ranks::each_in_a_thread(3, [&](std::size_t rank) {
        nccl::World world(id, 3, rank, gpu_ranks::impatient());
        const Comm comm(world);
        auto values = verb_values::input<float>(comm, rank, 100, 0);
        const float* const on_device = values.span().data();
        check_all_reduce<float, float>(comm, 100, 1);
        if (rank == 0) { return world.abort(); }
        const std::array<std::size_t, 1> lost{0};
        nccl::World left(nccl::Survivors{world, lost}, gpu_ranks::patient());
        const Comm fewer(left);
        CHECK(fewer.rank() == rank - 1);
        check_all_reduce<float, float>(fewer, 100, 3);
        std::vector<float> held(100);
        copy_out(world, on_device, held);
        for (std::size_t i = 0; i < held.size(); ++i) { REQUIRE(held[i] == verb_oracle::value<float>(rank, i)); }
        CHECK(contains(thrown_message<CommError>([&] { barrier(comm, world.streams().communication); }),
                       "its survivors have a World of their own"));
    });
    CHECK(gpu_ranks::first_error(outcomes) == "");
    CHECK(standin::live() == standin::Live{});
}

TEST_CASE("nccl: a survivor that does not come is an error on the others") {
    gpu_ranks::restart();
    const nccl::UniqueId id = nccl::UniqueId::create();
    const auto outcomes = gpu_ranks::each_in_a_thread(3, [&](std::size_t rank) {
        nccl::World world(id, 3, rank, survivable());
        world.revoke();
        if (rank == 1) { return; }
        const std::array<std::size_t, 1> lost{2};
        const nccl::World left(nccl::Survivors{world, lost}, gpu_ranks::impatient());
    });
    CHECK(outcomes[0].kind == Kind::comm);
    CHECK(contains(outcomes[0].text, "not every rank has made this call within " + gpu_ranks::after_short_timeout +
                                         " (ncclCommShrink)"));
    CHECK(standin::hangs() == 0);
    CHECK(standin::live() == standin::Live{});
}

TEST_CASE("nccl: survivors that make no sense are refused, and leave the World as it was") {
    gpu_ranks::restart();
    const auto refused = [](nccl::World& world, const std::vector<std::size_t>& lost) {
        return thrown_message<std::invalid_argument>([&] {
            nccl::World left(nccl::Survivors{world, lost}, gpu_ranks::impatient());
        });
    };
    const nccl::UniqueId id = nccl::UniqueId::create();
    const auto outcomes = gpu_ranks::each_in_a_thread(2, [&](std::size_t rank) {
        nccl::World world(id, 2, rank, gpu_ranks::patient());
        const Comm comm(world);
        CHECK(contains(refused(world, {}), "no rank is lost, expected at least one"));
        CHECK(contains(refused(world, {2}), "lost rank 2 of 2: there is none"));
        CHECK(contains(refused(world, {rank}), "it is this one"));
        CHECK(contains(refused(world, {1 - rank, 1 - rank}), "it is named twice"));
        check_all_reduce<float, float>(comm, 10, 1);

        nccl::World borrowing(nccl::Borrow{nccl::native(comm)}, gpu_ranks::patient());
        CHECK(contains(refused(borrowing, {1 - rank}), "over a communicator of the user's"));
    });
    CHECK(gpu_ranks::first_error(outcomes) == "");
    CHECK(standin::calls("ncclCommShrink") == 0);
    CHECK(standin::live() == standin::Live{});
}

TEST_CASE("nccl: a World that failed without being survivable has no survivors, nor has one of an old NCCL") {
    gpu_ranks::restart();
    const nccl::UniqueId id = nccl::UniqueId::create();
    const auto outcomes = gpu_ranks::each_in_a_thread(2, [&](std::size_t rank) {
        nccl::World world(id, 2, rank, gpu_ranks::impatient());
        const std::array<std::size_t, 1> lost{1 - rank};
        if (rank == 0) {
            standin::set_async_error(nccl::native(Comm(world)), ncclRemoteError);
            CHECK_THROWS_AS((check_all_reduce<float, float>(Comm(world), 10, 1)), CommError);
        } else {
            world.abort();
        }
        nccl::World left(nccl::Survivors{world, lost}, gpu_ranks::impatient());
    });
    for (const auto& outcome : outcomes) {
        CHECK(outcome.kind == Kind::comm);
        CHECK(contains(outcome.text, "this World has ended after an earlier failure"));
    }

    standin::set_nccl_version(22803);
    const std::string text =
        thrown_message<CommError>([] { nccl::World world(nccl::UniqueId::create(), 1, 0, survivable()); });
    CHECK(contains(text, "a survivable World"));
    CHECK(contains(text, "NCCL 2.28.3 is loaded, expected 2.28.7 or later"));
    CHECK(standin::live() == standin::Live{});
}

TEST_CASE("nccl: a World whose connections failed makes no survivors, and says what to do") {
    gpu_ranks::restart();
    const nccl::UniqueId id = nccl::UniqueId::create();
    const nccl::UniqueId anew = nccl::UniqueId::create();
    const auto outcomes = gpu_ranks::each_in_a_thread(3, [&](std::size_t rank) {
        nccl::World world(id, 3, rank, survivable());
        const Comm comm(world);
        if (rank == 1) { return world.abort(); }
        standin::fail_proxy(nccl::native(comm), ncclRemoteError);
        CHECK(
            contains(thrown_message<CommError>([&] { check_all_reduce<float, float>(comm, 10, 1); }), "returned 6"));
        const std::array<std::size_t, 1> lost{1};
        const std::string text = thrown_message<CommError>([&] {
            const nccl::World left(nccl::Survivors{world, lost}, gpu_ranks::impatient());
        });
        CHECK(contains(text, "Survivors at "));
        CHECK(contains(text, "ncclCommShrink returned 6"));
        CHECK(contains(text, "connect a World of the survivors by a new UniqueId"));
        nccl::World left(anew, 2, rank / 2, gpu_ranks::impatient());
        check_all_reduce<float, float>(Comm(left), 10, 1);
        left.finish();
    });
    CHECK(gpu_ranks::first_error(outcomes) == "");
    CHECK(standin::hangs() == 0);
    CHECK(standin::live() == standin::Live{});
}

}  // namespace survivors_test
