// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/cuda/stream.hpp>
#include <shardkit/backend/nccl/native.hpp>
#include <shardkit/backend/nccl/unique_id.hpp>
#include <shardkit/backend/threads/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/param/params.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/sharded/sharded.hpp>
#include <shardkit/verbs/split.hpp>

#include "../../thrown_message.hpp"
#include "../verb_suite.hpp"
#include "gpu_ranks.hpp"

namespace borrow_test {

namespace {

using namespace shardkit;
using namespace verb_checks;
using gpu_ranks::Comm;
using rank_checks::contains;
using rank_checks::expect;

constexpr std::size_t ranks = 3;

/// Communicators as a user's own program makes them: blocking ones.
class UsersComms {
  public:
    explicit UsersComms(std::size_t size) : comms_(size) {
        ncclUniqueId id;
        REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
        const auto outcomes = gpu_ranks::each_in_a_thread(size, [&](std::size_t rank) {
            nccl::detail::check(ncclCommInitRank(&comms_[rank], static_cast<int>(size), id, static_cast<int>(rank)),
                                "ncclCommInitRank", "test", SourceLocation::current());
        });
        REQUIRE(gpu_ranks::first_error(outcomes) == "");
    }
    UsersComms(const UsersComms&) = delete;
    UsersComms& operator=(const UsersComms&) = delete;
    ~UsersComms() {
        for (const ncclComm_t comm : comms_) { ncclCommAbort(comm); }
    }
    ncclComm_t operator[](std::size_t rank) const { return comms_[rank]; }

  private:
    std::vector<ncclComm_t> comms_;
};

/// Two ranks, each with a lent communicator and one that is split off it.
void use_two_communicators(const UsersComms& comms, const nccl::Options& options) {
    const auto outcomes = gpu_ranks::each_in_a_thread(2, [&](std::size_t rank) {
        nccl::World world(nccl::Borrow{comms[rank]}, options);
        const Comm comm(world);
        const Comm reversed = split(comm, 0, 1 - rank, "reversed");
        for (int i = 0; i < 3; ++i) {
            check_all_reduce<float, float>(comm, 100, 1);
            check_all_reduce<float, float>(reversed, 100, 1);
        }
    });
    CHECK(gpu_ranks::first_error(outcomes) == "");
}

}  // namespace

TEST_CASE("nccl: a borrowed communicator and the user's streams are used as they are and left alive") {
    for (const standin::Pace pace : gpu_ranks::paces) {
        gpu_ranks::restart(pace);
        {
            const UsersComms comms(ranks);
            const auto outcomes = gpu_ranks::each_in_a_thread(ranks, [&](std::size_t rank) {
                const gpu::Stream compute;
                const gpu::Stream communication;
                nccl::Options options = gpu_ranks::patient();
                options.compute = compute.ref().native();
                options.communication = communication.ref().native();
                nccl::World world(nccl::Borrow{comms[rank]}, options);
                const Comm comm(world);
                expect(nccl::native(comm) == comms[rank] && comm.rank() == rank && comm.size() == ranks, "its place");
                expect(world.streams().compute.native() == options.compute, "the user's stream");
                verb_suite::every_verb<float>(comm);
                verb_suite::splits_run_at_once(comm, 1);
                world.finish();
            });
            CHECK(gpu_ranks::first_error(outcomes) == "");
            CHECK(standin::calls("ncclCommInitRankConfig") == 0);
            CHECK(standin::live().communicators == ranks);  // those of the splits are gone
            CHECK(standin::order_violations().empty());
        }
        CHECK(standin::live() == standin::Live{});
    }
}

TEST_CASE("nccl: a sub-communicator of the user's does its verbs beside the World's own") {
    gpu_ranks::restart();
    const UsersComms pair(2);
    const auto outcomes =
        gpu_ranks::with_world(ranks, gpu_ranks::patient(), [&](const Comm& world, nccl::World& handle) {
            if (world.rank() < 2) {
                const Comm adopted = nccl::borrow(handle, nccl::Borrow{pair[world.rank()]}, "dp");
                expect(adopted.size() == 2 && adopted.rank() == world.rank() && adopted.axes() == "dp", "its place");
                check_all_reduce<float, float>(adopted, 100, 1);
                const Comm again = nccl::borrow(handle, nccl::Borrow{pair[world.rank()]}, "tp");
                check_all_gather<float>(again, 10, 1);
            }
            check_all_reduce<float, float>(world, 100, 1);
        });
    CHECK(gpu_ranks::first_error(outcomes) == "");
    CHECK(standin::live().communicators == 2);
}

TEST_CASE("nccl: borrowed communicators that do not fit are refused with both sides named") {
    gpu_ranks::restart();
    const UsersComms all(ranks);
    const UsersComms one(1);
    {
        nccl::Options options = gpu_ranks::impatient();
        options.device = 1;
        CHECK(
            contains(thrown_message<std::invalid_argument>([&] { nccl::World world(nccl::Borrow{all[0]}, options); }),
                     "it is of GPU 0, expected this World's GPU 1"));
        nccl::World world(nccl::Borrow{one[0]}, gpu_ranks::impatient());
        CHECK(
            contains(thrown_message<std::invalid_argument>([&] { nccl::borrow(world, nccl::Borrow{all[0]}, "dp"); }),
                     "borrowed communicator dp: it has 3 ranks, expected at most the World's 1"));
        CHECK(
            contains(thrown_message<std::invalid_argument>([&] { nccl::borrow(world, nccl::Borrow{nullptr}, "dp"); }),
                     "no communicator"));
    }
    standin::set_async_error(all[0], ncclRemoteError);
    CHECK(
        contains(thrown_message<CommError>([&] { nccl::World world(nccl::Borrow{all[0]}, gpu_ranks::impatient()); }),
                 "returned 6"));
    CHECK(standin::live().communicators == ranks + 1);
}

TEST_CASE("nccl: work of a borrowed communicator that hangs does not hang the World's end") {
    if (rank_checks::sanitized) { return; }  // what is left behind would be reported as a leak
    gpu_ranks::restart();
    const UsersComms comms(2);
    const auto outcomes = gpu_ranks::each_in_a_thread(2, [&](std::size_t rank) {
        nccl::World world(nccl::Borrow{comms[rank]}, gpu_ranks::impatient());
        const Comm comm(world);
        if (rank == 1) { return; }
        check_all_reduce<float, float>(comm, 100, 1);
    });
    CHECK(outcomes[0].kind == rank_checks::Kind::comm);
    CHECK(outcomes[1].kind == rank_checks::Kind::none);
    CHECK(standin::hangs() == 0);
    CHECK(standin::live().communicators == 2);  // neither aborted nor destroyed
}

TEST_CASE("nccl: a split of a lent communicator that ends after its World writes into memory that is still there") {
    // Only the address sanitizer sees where NCCL's thread writes.
    gpu_ranks::restart();
    ncclUniqueId id;
    REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    std::array<ncclComm_t, 2> comms{};
    const auto settled = [](ncclComm_t comm) {
        ncclResult_t state = ncclInProgress;
        while (state == ncclInProgress) { REQUIRE(ncclCommGetAsyncError(comm, &state) == ncclSuccess); }
        return state;
    };
    const auto made = gpu_ranks::each_in_a_thread(2, [&](std::size_t rank) {
        const ncclResult_t code = ncclCommInitRankConfig(&comms[rank], 2, id, static_cast<int>(rank), &config);
        expect(code == ncclSuccess || code == ncclInProgress, "it begins");
        expect(settled(comms[rank]) == ncclSuccess, "it is made");
    });
    REQUIRE(gpu_ranks::first_error(made) == "");
    nccl::Options options = gpu_ranks::impatient();
    options.compare_calls = CompareCalls::each_call;  // the World splits at once
    CHECK(
        contains(thrown_message<CommError>([&] { nccl::World world(nccl::Borrow{comms[0]}, options); }),
                 "not every rank has made this call within " + gpu_ranks::after_short_timeout + " (ncclCommSplit)"));
    const auto late = gpu_ranks::each_in_a_thread(2, [&](std::size_t rank) {
        static ncclComm_t out = nullptr;
        if (rank == 1) { ncclCommSplit(comms[1], 0, 1, &out, &config); }
        expect(settled(comms[rank]) == ncclSuccess, "the split is over");
        if (rank == 1) {
            expect(settled(out) == ncclSuccess, "it is made");
            ncclCommAbort(out);
        }
    });
    CHECK(gpu_ranks::first_error(late) == "");
    for (const ncclComm_t comm : comms) { ncclCommAbort(comm); }
    CHECK(standin::live().communicators == 1);  // of the rank that has given up
}

TEST_CASE("nccl: registered memory is NCCL's own and registered once with every communicator") {
    gpu_ranks::restart();
    nccl::Options options = gpu_ranks::patient();
    options.registration = nccl::Registration::buffers;
    options.arena_chunk_bytes = std::size_t{4} << 20U;
    {
        const UsersComms comms(2);
        use_two_communicators(comms, options);
        CHECK(standin::calls("ncclCommRegister") == 4);  // a chunk of each rank with two communicators
        CHECK(standin::calls("ncclMemAlloc") == 2);
        CHECK(standin::live().registrations == 0);
    }
    CHECK(standin::live() == standin::Live{});
}

TEST_CASE("nccl: a lent communicator of the wrong size or order is not adopted by a mesh") {
    gpu_ranks::restart();
    const UsersComms comms(4);
    const auto outcomes = gpu_ranks::with_world(4, gpu_ranks::patient(), [&](const Comm& comm, nccl::World& world) {
        MeshRank<DeviceMesh<dynamic>> rank(DeviceMesh{4}, comm, {}, world.streams());
        const std::size_t r = rank.rank();
        const auto refused = [&](const Comm& given) {
            return thrown_message<std::invalid_argument>([&] { rank.adopt(Axes<Dp>{}, given); });
        };
        const Comm half = split(comm, r / 2, r, "half");
        expect(contains(refused(half), "the communicator has 2 ranks and this is its rank " + std::to_string(r % 2) +
                                           ", expected 4 ranks and rank " + std::to_string(r)),
               refused(half));
        const Comm reversed = split(comm, 0, 3 - r, "reversed");
        expect(contains(
                   refused(nccl::borrow(world, nccl::Borrow{nccl::native(reversed)}, "dp")),
                   "this is its rank " + std::to_string(3 - r) + ", expected 4 ranks and rank " + std::to_string(r)),
               "another order");
        rank.adopt(Axes<Dp>{}, nccl::borrow(world, nccl::Borrow{comms[r]}, "dp"));
        check_all_reduce<float, float>(rank.template sub_mesh<Axes<Dp>>(), 100, 1);
    });
    CHECK(gpu_ranks::first_error(outcomes) == "");
}

TEST_CASE("nccl: a GPU's memory where values of the host are expected, and too little of it, are refused by name") {
    struct Weight : Param<"weight", float, 10> {};
    struct Large : Param<"weight", float, 1U << 20U> {};
    gpu_ranks::restart();
    const auto outcomes = gpu_ranks::with_world(2, gpu_ranks::patient(), [](const Comm& comm, nccl::World& world) {
        MeshRank<DeviceMesh<dynamic>> rank(DeviceMesh{2}, comm, {}, world.streams());
        Sharded<Weight, FullShard> layer(rank, "blocks.3");
        auto buffer = comm.buffer<float>(10);
        const std::span<float> device(buffer.data(), 10);
        const std::string given =
            ": device memory of GPU " + std::to_string(comm.rank()) + " given, host memory expected";
        const auto loading =
            thrown_message<std::invalid_argument>([&] { layer.load(Weight{}, std::span<const float>(device)); });
        expect(contains(loading, "'blocks.3' parameter 'weight': load" + given), loading);
        const auto reading = thrown_message<std::invalid_argument>([&] { layer.read_full(Weight{}, device); });
        expect(contains(reading, "'blocks.3' parameter 'weight': read_full" + given), reading);

        standin::fail_next("cudaMalloc", cudaErrorMemoryAllocation, static_cast<int>(comm.rank()));
        const auto large =
            thrown_message<std::bad_alloc>([&] { const Sharded<Large, FullShard> none(rank, "blocks.4"); });
        expect(large == "'blocks.4': no memory for 4194304 bytes of gather buffer", large);

        std::vector<float> values{1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
        layer.load(Weight{}, std::span<const float>(values));
        std::vector<float> back(10);
        layer.read_full(Weight{}, std::span<float>(back));
        expect(back == values, "what was loaded");
    });
    CHECK(gpu_ranks::first_error(outcomes) == "");
}

TEST_CASE("nccl: a stream of another GPU than the World's is refused") {
    gpu_ranks::restart();
    gpu::detail::check(cudaSetDevice(1), "cudaSetDevice");
    const gpu::Stream other;
    gpu::detail::check(cudaSetDevice(0), "cudaSetDevice");
    for (const bool compute : {true, false}) {
        nccl::Options options = gpu_ranks::patient();
        (compute ? options.compute : options.communication) = other.ref().native();
        CHECK_THROWS_AS(nccl::World(nccl::UniqueId::create(), 1, 0, options), gpu::Error);
    }
}

TEST_CASE("nccl: windows are made once with every communicator, and NCCL before 2.27 has none") {
    gpu_ranks::restart();
    nccl::Options options = gpu_ranks::patient();
    options.registration = nccl::Registration::windows;
    options.arena_chunk_bytes = std::size_t{4} << 20U;
    {
        const UsersComms comms(2);
        use_two_communicators(comms, options);
        CHECK(standin::calls("ncclCommWindowRegister") == 4);  // a chunk of each rank with two communicators
        CHECK(standin::calls("ncclCommWindowDeregister") == 4);
        CHECK(standin::calls("ncclCommRegister") == 0);
        CHECK(standin::calls("ncclMemAlloc") == 2);
    }
    CHECK(standin::live() == standin::Live{});

    standin::set_nccl_version(22605);
    const std::string text =
        thrown_message<CommError>([&] { nccl::World world(nccl::UniqueId::create(), 1, 0, options); });
    CHECK(contains(text, "registered windows"));
    CHECK(contains(text, "NCCL 2.26.5 is loaded, expected 2.27.3 or later"));
    CHECK(standin::live() == standin::Live{});
}

}  // namespace borrow_test
