// SPDX-License-Identifier: Apache-2.0
// The NCCL half of the stand-in; ranks are threads, each with a device of its own.
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <shardkit/core/bf16.hpp>
#include <shardkit/core/fp16.hpp>

#include "cuda_fixture.hpp"

namespace standin_nccl_test {

using shardkit::bf16;
using shardkit::fp16;
using standin::Pace;

namespace {

ncclUniqueId new_id() {
    ncclUniqueId id{};
    CHECK(ncclGetUniqueId(&id) == ncclSuccess);
    return id;
}

ncclResult_t async_error(ncclComm_t comm) {
    ncclResult_t error = ncclInternalError;
    CHECK(ncclCommGetAsyncError(comm, &error) == ncclSuccess);
    return error;
}

/// A communicator that does not block, as the call leaves it: in the making.
ncclComm_t begin_non_blocking(int ranks, const ncclUniqueId& id, int rank) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t comm = nullptr;
    CHECK(ncclCommInitRankConfig(&comm, ranks, id, rank, &config) == ncclInProgress);
    return comm;
}
ncclResult_t poll(ncclComm_t comm) {
    ncclResult_t error = ncclInProgress;
    while (error == ncclInProgress) {
        error = async_error(comm);
        std::this_thread::yield();
    }
    return error;
}

struct Rank {
    int rank;
    int ranks;
    ncclComm_t comm;
    TestStream& stream;
};

/// Runs f(Rank&) on `ranks` threads, each with its end of a communicator.
template <class F>
void with_ranks(int ranks, const F& f) {
    const ncclUniqueId id = new_id();
    on_ranks(ranks, [&](int index) {
        TestStream stream;
        Rank rank{index, ranks, nullptr, stream};
        CHECK(ncclCommInitRank(&rank.comm, ranks, id, index) == ncclSuccess);
        f(rank);
        if (rank.comm != nullptr) { CHECK(ncclCommDestroy(rank.comm) == ncclSuccess); }
    });
}

template <class T>
T make(int value) {
    if constexpr (std::is_arithmetic_v<T>) {
        return static_cast<T>(value);
    } else {
        return T(static_cast<float>(value));
    }
}

/// What rank r gives as element i.
template <class T>
T element(int rank, int i) {
    return make<T>(1 + (rank + 1) * (i % 5));
}

template <class T>
void check_collectives(const Rank& r, ncclDataType_t type) {
    constexpr int k = 3;
    const int n = r.ranks;
    const auto size = static_cast<std::size_t>(k * n);
    const auto own = static_cast<std::size_t>(r.rank * k);
    DeviceArray<T> in(size);
    DeviceArray<T> out(size);
    const auto fill = [&](T* to, int count) {
        for (int i = 0; i < count; ++i) { to[i] = element<T>(r.rank, i); }
    };
    const auto sum = [&](int i) {
        int total = 0;
        for (int rank = 0; rank < n; ++rank) { total += 1 + (rank + 1) * (i % 5); }
        return make<T>(total);
    };
    const auto sync = [&] { CHECK(cudaStreamSynchronize(r.stream) == cudaSuccess); };
    const auto gathered = [&](const T* values) {
        bool right = true;
        for (int i = 0; i < k * n; ++i) { right = right && values[i] == element<T>(i / k, i % k); }
        return right;
    };
    const auto summed = [&](const T* values, int first, int count) {
        bool right = true;
        for (int i = 0; i < count; ++i) { right = right && values[i] == sum(first + i); }
        return right;
    };

    r.stream.run([&] { fill(in.data, k); });
    CHECK(ncclAllGather(in.data, out.data, k, type, r.comm, r.stream) == ncclSuccess);
    sync();
    CHECK(gathered(out.data));
    r.stream.run([&] { fill(in.data + own, k); });
    CHECK(ncclAllGather(in.data + own, in.data, k, type, r.comm, r.stream) == ncclSuccess);
    sync();
    CHECK(gathered(in.data));

    fill(in.data, k * n);
    CHECK(ncclReduceScatter(in.data, out.data, k, type, ncclSum, r.comm, r.stream) == ncclSuccess);
    sync();
    CHECK(summed(out.data, r.rank * k, k));
    CHECK(ncclReduceScatter(in.data, in.data + own, k, type, ncclSum, r.comm, r.stream) == ncclSuccess);
    sync();
    CHECK(summed(in.data + own, r.rank * k, k));

    fill(in.data, k * n);
    CHECK(ncclAllReduce(in.data, out.data, size, type, ncclSum, r.comm, r.stream) == ncclSuccess);
    sync();
    CHECK(summed(out.data, 0, k * n));
    CHECK(ncclAllReduce(in.data, in.data, size, type, ncclSum, r.comm, r.stream) == ncclSuccess);
    sync();
    CHECK(summed(in.data, 0, k * n));
    for (const ncclRedOp_t op : {ncclMax, ncclMin}) {
        fill(in.data, k);
        CHECK(ncclAllReduce(in.data, out.data, k, type, op, r.comm, r.stream) == ncclSuccess);
        sync();
        CHECK(out[1] == element<T>(op == ncclMax ? n - 1 : 0, 1));
    }
    fill(in.data, k);
    CHECK(ncclAllReduce(in.data, out.data, 1, type, ncclProd, r.comm, r.stream) == ncclSuccess);
    CHECK(ncclAllReduce(in.data, in.data, 1, type, ncclAvg, r.comm, r.stream) == ncclSuccess);
    sync();
    CHECK(out[0] == make<T>(1));
    CHECK(in[0] == make<T>(1));

    for (int root = 0; root < n; ++root) {
        fill(in.data, k);
        CHECK(ncclBroadcast(in.data, out.data, k, type, root, r.comm, r.stream) == ncclSuccess);
        sync();
        CHECK(out[2] == element<T>(root, 2));
        CHECK(ncclBroadcast(in.data, in.data, k, type, root, r.comm, r.stream) == ncclSuccess);
        sync();
        CHECK(in[2] == element<T>(root, 2));
    }

    fill(in.data, k * n);
    CHECK(ncclGroupStart() == ncclSuccess);
    for (int peer = 0; peer < n; ++peer) {
        CHECK(ncclSend(in.data + peer * k, k, type, peer, r.comm, r.stream) == ncclSuccess);
        CHECK(ncclRecv(out.data + peer * k, k, type, peer, r.comm, r.stream) == ncclSuccess);
    }
    CHECK(ncclGroupEnd() == ncclSuccess);
    sync();
    bool exchanged = true;
    for (int i = 0; i < k * n; ++i) {
        exchanged = exchanged && out[static_cast<std::size_t>(i)] == element<T>(i / k, r.rank * k + i % k);
    }
    CHECK(exchanged);
}

void check_all_types(const Rank& r) {
    check_collectives<std::int8_t>(r, ncclInt8);
    check_collectives<std::uint8_t>(r, ncclUint8);
    check_collectives<std::int32_t>(r, ncclInt32);
    check_collectives<std::uint32_t>(r, ncclUint32);
    check_collectives<std::int64_t>(r, ncclInt64);
    check_collectives<std::uint64_t>(r, ncclUint64);
    check_collectives<fp16>(r, ncclFloat16);
    check_collectives<float>(r, ncclFloat32);
    check_collectives<double>(r, ncclFloat64);
    check_collectives<bf16>(r, ncclBfloat16);
}

/// Ends a communicator whose operations may never complete.
void abort(Rank& r) { CHECK(ncclCommAbort(std::exchange(r.comm, nullptr)) == ncclSuccess); }

}  // namespace

TEST_CASE("collectives: values of all types on 1 to 5 ranks, lazy and eager") {
    for (const Pace pace : {Pace::lazy, Pace::eager}) {
        for (int ranks = 1; ranks <= 5; ++ranks) {
            const Fresh fresh;
            standin::set_pace(pace);
            with_ranks(ranks, [](const Rank& r) { check_all_types(r); });
            CHECK(standin::order_violations().empty());
        }
    }
}

TEST_CASE("16-bit sums are rounded at every addition") {
    const Fresh fresh;
    with_ranks(3, [](const Rank& r) {
        DeviceArray<bf16> value(1);
        value[0] = bf16(r.rank == 2 ? 256.0F : 1.0F);  // 256 + 1 + 1: 258 in float
        CHECK(ncclAllReduce(value.data, value.data, 1, ncclBfloat16, ncclSum, r.comm, r.stream) == ncclSuccess);
        CHECK(cudaStreamSynchronize(r.stream) == cudaSuccess);
        CHECK(static_cast<float>(value[0]) == 256.0F);
    });
}

TEST_CASE(
    "16-bit sums by kernels for symmetric windows are added in fp32 and rounded once, or the communicator is in "
    "error") {
    struct Case {
        bool there;    // such kernels
        bool windows;  // the memory is in one
        bool blocking;
        bool works;
    };
    for (const Case each :
         {Case{true, true, true, true}, Case{true, true, false, true}, Case{true, false, true, false},
          Case{true, false, false, false}, Case{false, true, false, false}}) {
        const Fresh fresh;
        standin::set_nccl_version(23203);
        standin::set_symmetric_kernels(each.there);
        const ncclUniqueId id = new_id();
        on_ranks(3, [&](int rank) {
            TestStream stream;
            ncclComm_t comm = nullptr;
            if (each.blocking) {
                CHECK(ncclCommInitRank(&comm, 3, id, rank) == ncclSuccess);
            } else {
                comm = begin_non_blocking(3, id, rank);
            }
            CHECK(poll(comm) == ncclSuccess);
            void* memory = nullptr;
            CHECK(ncclMemAlloc(&memory, 4096) == ncclSuccess);
            ncclWindow_t window = nullptr;
            if (each.windows) {
                CHECK(ncclCommWindowRegister(comm, memory, 4096, &window, NCCL_WIN_COLL_SYMMETRIC) == ncclSuccess);
                CHECK(poll(comm) == ncclSuccess);
            }
            bf16* const values = static_cast<bf16*>(memory);
            // 256 + 1 + 1 is 258, and 256 with a rounding at every addition; 1 + 2^-8 + 2^-8 is 1 + 2^-7, and 1
            // likewise.
            const float addends[3][3] = {{1, 1, 256}, {1, 0x1p-8F, 0x1p-8F}, {0, -1, 1}};
            for (int i = 0; i < 3; ++i) { values[i] = bf16(addends[i][rank]); }
            ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
            config.algSelection = "RINGS";
            CHECK(ncclAllReduceConfig(values, values, 3, ncclBfloat16, ncclSum, comm, stream, &config) ==
                  ncclInvalidArgument);
            config.algSelection = "SYMK";
            const auto finish = [&](ncclResult_t code) { return code == ncclInProgress ? poll(comm) : code; };
            const ncclResult_t code =
                finish(ncclReduceScatterConfig(values, values + 16, 1, ncclBfloat16, ncclSum, comm, stream, &config));
            CHECK(code == (each.works ? ncclSuccess : ncclInvalidArgument));
            if (each.works) {
                CHECK(finish(ncclAllReduceConfig(values, values, 3, ncclBfloat16, ncclSum, comm, stream, &config)) ==
                      ncclSuccess);
                CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
                const float sums[3] = {258, 1 + 0x1p-7F, 0};
                CHECK(static_cast<float>(values[16]) == sums[rank]);
                for (int i = 0; i < 3; ++i) { CHECK(static_cast<float>(values[i]) == sums[i]); }
            } else if (!each.blocking) {
                CHECK(std::string(ncclGetLastError(comm)).find("algSelection names only symmetric") !=
                      std::string::npos);
                CHECK(ncclReduceScatter(values, values + 16, 1, ncclBfloat16, ncclSum, comm, stream) ==
                      ncclInvalidArgument);
            }
            CHECK(ncclCommAbort(comm) == ncclSuccess);
            CHECK(ncclMemFree(memory) == ncclSuccess);
        });
    }
}

TEST_CASE("an all-reduce adds in another order than a reduce-scatter, and may give ranks other bits") {
    for (const bool same : {true, false}) {
        const Fresh fresh;
        standin::set_same_bits(same);
        std::array<float, 3> all{};
        std::array<float, 3> scattered{};
        with_ranks(3, [&](const Rank& r) {
            // 1 + 2^-24 is 1 in fp32, 2^-24 + 2^-24 is exact.
            const float addends[] = {1, 0x1p-24F, 0x1p-24F};
            DeviceArray<float> values(3);
            DeviceArray<float> sum(1);
            for (int i = 0; i < 3; ++i) { values[static_cast<std::size_t>(i)] = addends[r.rank]; }
            CHECK(ncclReduceScatter(values.data, sum.data, 1, ncclFloat32, ncclSum, r.comm, r.stream) == ncclSuccess);
            CHECK(cudaStreamSynchronize(r.stream) == cudaSuccess);
            scattered[static_cast<std::size_t>(r.rank)] = sum[0];
            CHECK(ncclAllReduce(values.data, values.data, 1, ncclFloat32, ncclSum, r.comm, r.stream) == ncclSuccess);
            CHECK(cudaStreamSynchronize(r.stream) == cudaSuccess);
            all[static_cast<std::size_t>(r.rank)] = values[0];
        });
        CHECK(scattered == std::array<float, 3>{1, 1, 1});
        const float other = 1 + 0x1p-23F;
        CHECK(all == (same ? std::array<float, 3>{other, other, other} : std::array<float, 3>{1, 1, other}));
    }
}

TEST_CASE("a rank's wait drives its peers no further than the collective") {
    const Fresh fresh;
    std::atomic<bool> queued{false};
    std::atomic<bool> synchronized{false};
    std::atomic<bool> later{false};
    with_ranks(2, [&](const Rank& r) {
        DeviceArray<int> value(1);
        if (r.rank == 1) {
            r.stream.run([&] { value[0] = 41; });
        }
        if (r.rank == 0) { value[0] = 1; }
        CHECK(ncclAllReduce(value.data, value.data, 1, ncclInt32, ncclSum, r.comm, r.stream) == ncclSuccess);
        if (r.rank == 1) {
            r.stream.run([&] { later = true; });
            queued = true;
            while (!synchronized) { std::this_thread::yield(); }
            CHECK_FALSE(later);
            CHECK(value[0] == 42);
        } else {
            while (!queued) { std::this_thread::yield(); }
            CHECK(cudaStreamSynchronize(r.stream) == cudaSuccess);
            CHECK(value[0] == 42);
            synchronized = true;
        }
    });
    CHECK(later);  // freeing the memory waited for it
}

TEST_CASE("a missing peer leaves the stream not ready, and an abort from another thread ends the wait") {
    const Fresh fresh;
    std::atomic<bool> first_is_done{false};
    with_ranks(2, [&](Rank& r) {
        if (r.rank == 0) {
            DeviceArray<int> value(1);
            value[0] = 5;
            bool after = false;
            CHECK(ncclAllReduce(value.data, value.data, 1, ncclInt32, ncclSum, r.comm, r.stream) == ncclSuccess);
            r.stream.run([&] { after = true; });
            CHECK(cudaStreamQuery(r.stream) == cudaErrorNotReady);
            std::thread watchdog([&] { abort(r); });
            CHECK(cudaStreamSynchronize(r.stream) == cudaSuccess);
            watchdog.join();
            CHECK(value[0] == 5);
            CHECK(after);
            first_is_done = true;
        } else {
            while (!first_is_done) { std::this_thread::yield(); }
            abort(r);
        }
    });
    CHECK(standin::hangs() == 0);
}

TEST_CASE("a killed rank: its peers never complete and see no error") {
    const Fresh fresh;
    std::atomic<int> queued{0};
    std::atomic<int> seen{0};
    with_ranks(3, [&](Rank& r) {
        DeviceArray<float> value(2);
        if (r.rank == 1) { standin::kill_rank(r.comm); }
        CHECK(ncclAllReduce(value.data, value.data, 1, ncclFloat32, ncclSum, r.comm, r.stream) == ncclSuccess);
        ++queued;
        while (queued < 3) { std::this_thread::yield(); }
        CHECK(cudaStreamQuery(r.stream) == cudaErrorNotReady);
        CHECK(async_error(r.comm) == ncclSuccess);
        ++seen;
        while (seen < 3) { std::this_thread::yield(); }
        abort(r);
        CHECK(cudaStreamQuery(r.stream) == cudaSuccess);
    });
}

TEST_CASE("an injected asynchronous error stops one rank and is returned by its calls") {
    const Fresh fresh;
    std::atomic<int> seen{0};
    with_ranks(2, [&](Rank& r) {
        DeviceArray<float> value(1);
        if (r.rank == 0) { standin::set_async_error(r.comm, ncclRemoteError); }
        const ncclResult_t expected = r.rank == 0 ? ncclRemoteError : ncclSuccess;
        CHECK(ncclAllReduce(value.data, value.data, 1, ncclFloat32, ncclSum, r.comm, r.stream) == expected);
        CHECK(async_error(r.comm) == expected);
        CHECK(cudaStreamQuery(r.stream) == (r.rank == 0 ? cudaSuccess : cudaErrorNotReady));
        if (r.rank == 0) {
            CHECK(std::string(ncclGetLastError(r.comm)) == "injected asynchronous error");
            CHECK(ncclCommDestroy(r.comm) == ncclRemoteError);  // still there: it must be aborted
        }
        ++seen;
        while (seen < 2) { std::this_thread::yield(); }
        abort(r);
    });
}

TEST_CASE("calls that do not match are an error on all ranks") {
    const Fresh fresh;
    for (const char* const what : {"count", "type", "op", "root", "kind", "message"}) {
        CAPTURE(what);
        const std::string differs = what;
        std::atomic<int> seen{0};
        with_ranks(2, [&](Rank& r) {
            DeviceArray<float> value(4);
            const bool second = r.rank == 1;
            const bool other = second;
            float* const data = value.data;
            if (differs == "count") {
                ncclAllReduce(data, data, other ? 2 : 1, ncclFloat32, ncclSum, r.comm, r.stream);
            } else if (differs == "type") {
                ncclAllReduce(data, data, 1, other ? ncclInt32 : ncclFloat32, ncclSum, r.comm, r.stream);
            } else if (differs == "op") {
                ncclAllReduce(data, data, 1, ncclFloat32, other ? ncclMax : ncclSum, r.comm, r.stream);
            } else if (differs == "root") {
                ncclBroadcast(data, data, 1, ncclFloat32, other ? 1 : 0, r.comm, r.stream);
            } else if (differs == "kind") {
                if (other) {
                    ncclBroadcast(data, data, 1, ncclFloat32, 0, r.comm, r.stream);
                } else {
                    ncclAllReduce(data, data, 1, ncclFloat32, ncclSum, r.comm, r.stream);
                }
            } else if (other) {
                ncclSend(data, 2, ncclFloat32, 0, r.comm, r.stream);
            } else {
                ncclRecv(data, 1, ncclFloat32, 1, r.comm, r.stream);
            }
            while (async_error(r.comm) == ncclSuccess) { std::this_thread::yield(); }
            CHECK(async_error(r.comm) == ncclInvalidUsage);
            CHECK(std::string(ncclGetLastError(r.comm)).find("rank 0 called") != std::string::npos);
            CHECK(cudaStreamQuery(r.stream) == cudaErrorNotReady);
            ++seen;
            while (seen < 2) { std::this_thread::yield(); }
            abort(r);
        });
    }
}

TEST_CASE("arguments are checked") {
    const Fresh fresh;
    with_ranks(2, [&](const Rank& r) {
        DeviceArray<float> device(4);
        float* const data = device.data;
        std::vector<float> host(4);
        const auto reduce = [&](void* memory, std::size_t n, int type, int op, cudaStream_t stream) {
            return ncclAllReduce(memory, memory, n, static_cast<ncclDataType_t>(type), static_cast<ncclRedOp_t>(op),
                                 r.comm, stream);
        };
        CHECK(reduce(host.data(), 1, ncclFloat32, ncclSum, r.stream) == ncclInvalidArgument);
        CHECK(reduce(data, 5, ncclFloat32, ncclSum, r.stream) == ncclInvalidArgument);
        CHECK(reduce(data, 1, ncclFloat32, ncclSum, nullptr) == ncclInvalidArgument);
        CHECK(reduce(data, 1, ncclNumTypes, ncclSum, r.stream) == ncclInvalidArgument);
        CHECK(reduce(data, 1, ncclFloat8e4m3, ncclSum, r.stream) == ncclInvalidArgument);
        CHECK(reduce(data, 1, ncclFloat32, ncclNumOps, r.stream) == ncclInvalidArgument);
        CHECK(ncclAllReduce(data, data + 1, 2, ncclFloat32, ncclSum, r.comm, r.stream) == ncclInvalidArgument);
        CHECK(ncclBroadcast(data, data, 1, ncclFloat32, 2, r.comm, r.stream) == ncclInvalidArgument);
        CHECK(ncclSend(data, 1, ncclFloat32, -1, r.comm, r.stream) == ncclInvalidArgument);
        CHECK(std::string(ncclGetLastError(nullptr)) == "ncclSend: invalid peer");
        CHECK(ncclGroupEnd() == ncclInvalidUsage);
        CHECK(ncclGroupStart() == ncclSuccess);
        CHECK(reduce(data, 1, ncclFloat32, ncclSum, r.stream) == ncclSuccess);
        CHECK(reduce(host.data(), 1, ncclFloat32, ncclSum, r.stream) == ncclInvalidArgument);
        CHECK(ncclGroupEnd() == ncclInvalidArgument);  // and nothing of the group was queued
        CHECK(reduce(nullptr, 0, ncclFloat32, ncclSum, r.stream) == ncclSuccess);
        CHECK(cudaStreamQuery(r.stream) == cudaSuccess);
        int value = -1;
        CHECK(ncclCommCount(r.comm, &value) == ncclSuccess);
        CHECK(value == 2);
        CHECK(ncclCommUserRank(r.comm, &value) == ncclSuccess);
        CHECK(value == r.rank);
        CHECK(ncclCommCuDevice(r.comm, &value) == ncclSuccess);
        CHECK(value == r.rank);
    });
    int count = 0;
    ncclComm_t gone = nullptr;
    CHECK(ncclCommCount(gone, &count) == ncclInvalidArgument);
}

TEST_CASE("messages are matched in order, ungrouped too") {
    const Fresh fresh;
    with_ranks(2, [](const Rank& r) {
        DeviceArray<int> values(3);
        for (int i = 0; i < 3; ++i) {
            int* const at = values.data + i;
            if (r.rank == 0) {
                *at = 10 + i;
                CHECK(ncclSend(at, 1, ncclInt32, 1, r.comm, r.stream) == ncclSuccess);
            } else {
                CHECK(ncclRecv(at, 1, ncclInt32, 0, r.comm, r.stream) == ncclSuccess);
            }
        }
        CHECK(cudaStreamSynchronize(r.stream) == cudaSuccess);
        CHECK(values[2] == 12);
    });
    CHECK(standin::order_violations().empty());
}

TEST_CASE("split: colours, keys, and no colour") {
    const Fresh fresh;
    with_ranks(5, [](const Rank& r) {
        const int color = r.rank == 4 ? NCCL_SPLIT_NOCOLOR : r.rank % 2;
        ncclComm_t part = nullptr;
        CHECK(ncclCommSplit(r.comm, color, -r.rank, &part, nullptr) == ncclSuccess);
        CHECK((part == nullptr) == (r.rank == 4));
        if (part == nullptr) { return; }
        int count = 0;
        int rank = -1;
        CHECK(ncclCommCount(part, &count) == ncclSuccess);
        CHECK(ncclCommUserRank(part, &rank) == ncclSuccess);
        CHECK(count == 2);
        CHECK(rank == (r.rank < 2 ? 1 : 0));
        DeviceArray<int> value(1);
        value[0] = r.rank;
        CHECK(ncclAllReduce(value.data, value.data, 1, ncclInt32, ncclSum, part, r.stream) == ncclSuccess);
        CHECK(cudaStreamSynchronize(r.stream) == cudaSuccess);
        CHECK(value[0] == (color == 0 ? 2 : 4));
        CHECK(ncclCommDestroy(part) == ncclSuccess);
    });
    CHECK(standin::calls("ncclCommSplit") == 5);
}

TEST_CASE("a split that waits for a rank that has ended its communicator is an error") {
    const Fresh fresh;
    with_ranks(3, [](Rank& r) {
        if (r.rank == 1) { return abort(r); }
        ncclComm_t part = nullptr;
        CHECK(ncclCommSplit(r.comm, 0, r.rank, &part, nullptr) == ncclRemoteError);
        CHECK(part == nullptr);
        abort(r);
    });
    CHECK(standin::hangs() == 0);
}

TEST_CASE("shrink leaves ranks out") {
    const Fresh fresh;
    with_ranks(3, [](Rank& r) {
        if (r.rank == 1) {
            standin::kill_device(1);
            return abort(r);
        }
        int excluded = 1;
        ncclComm_t rest = nullptr;
        CHECK(ncclCommShrink(r.comm, &excluded, 1, &rest, nullptr, NCCL_SHRINK_ABORT) == ncclSuccess);
        int count = 0;
        CHECK(ncclCommCount(rest, &count) == ncclSuccess);
        CHECK(count == 2);
        CHECK(ncclCommDestroy(rest) == ncclSuccess);
    });
}

TEST_CASE("non-blocking communicators are in progress until they are polled") {
    const Fresh fresh;
    const ncclUniqueId id = new_id();
    on_ranks(3, [&](int rank) {
        TestStream stream;
        DeviceArray<int> value(1);
        value[0] = 1;
        const ncclComm_t comm = begin_non_blocking(3, id, rank);
        int count = 0;
        CHECK(ncclCommCount(comm, &count) == ncclInvalidArgument);
        CHECK(poll(comm) == ncclSuccess);
        CHECK(ncclAllReduce(value.data, value.data, 1, ncclInt32, ncclSum, comm, stream) == ncclInProgress);
        CHECK(cudaStreamQuery(stream) == cudaSuccess);  // nothing is queued yet
        CHECK(poll(comm) == ncclSuccess);
        CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
        CHECK(value[0] == 3);
        ncclComm_t part = nullptr;
        CHECK(ncclCommSplit(comm, 0, rank, &part, nullptr) == ncclSuccess);
        CHECK(part == nullptr);  // in progress all the same; written when the parent is ready
        int members = 0;
        CHECK(ncclCommCount(comm, &members) == ncclInvalidArgument);
        CHECK(poll(comm) == ncclSuccess);
        CHECK(part != nullptr);
        CHECK(poll(part) == ncclSuccess);
        CHECK(ncclAllReduce(value.data, value.data, 1, ncclInt32, ncclSum, part, stream) == ncclInProgress);
        CHECK(poll(part) == ncclSuccess);
        CHECK(ncclCommFinalize(part) == ncclInProgress);
        CHECK(poll(part) == ncclSuccess);
        CHECK(value[0] == 9);
        CHECK(ncclCommDestroy(part) == ncclSuccess);
        CHECK(ncclCommAbort(comm) == ncclSuccess);
    });
}

TEST_CASE("a window of a non-blocking communicator is written when that is ready, whatever the call returned") {
    for (const int version : {22703, 22800}) {
        const Fresh fresh;
        standin::set_nccl_version(version);
        const ncclUniqueId id = new_id();
        on_ranks(2, [&](int rank) {
            const ncclComm_t comm = begin_non_blocking(2, id, rank);
            CHECK(poll(comm) == ncclSuccess);
            void* memory = nullptr;
            ncclWindow_t window = nullptr;
            CHECK(ncclMemAlloc(&memory, 4096) == ncclSuccess);
            CHECK(ncclCommWindowRegister(comm, memory, 4096, &window, NCCL_WIN_COLL_SYMMETRIC) ==
                  (version < 22800 ? ncclInProgress : ncclSuccess));
            CHECK(window == nullptr);
            int count = 0;
            CHECK(ncclCommCount(comm, &count) == ncclInvalidArgument);
            CHECK(poll(comm) == ncclSuccess);
            CHECK(window != nullptr);
            CHECK(ncclCommWindowDeregister(comm, window) == ncclSuccess);
            CHECK(ncclCommAbort(comm) == ncclSuccess);
            CHECK(ncclMemFree(memory) == ncclSuccess);
        });
    }
}

TEST_CASE("a window is there once all ranks have come to it, in the same size") {
    const Fresh fresh;
    const ncclUniqueId id = new_id();
    std::atomic<bool> second_comes = false;
    on_ranks(2, [&](int rank) {
        const ncclComm_t comm = begin_non_blocking(2, id, rank);
        CHECK(poll(comm) == ncclSuccess);
        void* memory = nullptr;
        ncclWindow_t window = nullptr;
        CHECK(ncclMemAlloc(&memory, 8192) == ncclSuccess);
        if (rank == 1) {
            while (!second_comes) { std::this_thread::yield(); }
        }
        CHECK(ncclCommWindowRegister(comm, memory, 4096, &window, 0) == ncclSuccess);
        if (rank == 0) {
            for (int i = 0; i < 20; ++i) { CHECK(async_error(comm) == ncclInProgress); }
            second_comes = true;
        }
        CHECK(poll(comm) == ncclSuccess);
        CHECK(window != nullptr);
        CHECK(ncclCommWindowDeregister(comm, window) == ncclSuccess);
        CHECK(ncclCommWindowRegister(comm, memory, rank == 0 ? 4096 : 8192, &window, 0) == ncclSuccess);
        CHECK(poll(comm) == ncclInvalidUsage);
        CHECK(ncclCommAbort(comm) == ncclSuccess);
        CHECK(ncclMemFree(memory) == ncclSuccess);
    });
}

TEST_CASE("collectives whose ranks use different places of their windows are told, as NCCL tells nobody") {
    for (const bool even : {true, false}) {
        for (const bool inside : {true, false}) {
            CAPTURE(even);
            CAPTURE(inside);
            const Fresh fresh;
            const ncclUniqueId id = new_id();
            on_ranks(2, [&](int rank) {
                ncclComm_t comm = nullptr;
                cudaStream_t stream = nullptr;
                CHECK(ncclCommInitRank(&comm, 2, id, rank) == ncclSuccess);
                CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
                void* memory = nullptr;
                void* other = nullptr;
                ncclWindow_t window = nullptr;
                CHECK(ncclMemAlloc(&memory, 8192) == ncclSuccess);
                CHECK(cudaMalloc(&other, 8192) == cudaSuccess);
                CHECK(ncclCommWindowRegister(comm, memory, 8192, &window, NCCL_WIN_COLL_SYMMETRIC) == ncclSuccess);
                auto* const floats = static_cast<float*>(inside || even || rank == 0 ? memory : other);
                const std::size_t at = inside && !even && rank == 1 ? 128 : 0;
                // Peers write what a gather receives, and read what a reduction sends: the other end may lie
                // anywhere.
                CHECK(ncclAllGather(floats + 1024 + (rank == 0 ? 0 : 512), floats + at, 8, ncclFloat, comm, stream) ==
                      ncclSuccess);
                CHECK(ncclReduceScatter(floats + at, floats + 1024 + (rank == 0 ? 0 : 512), 8, ncclFloat, ncclSum,
                                        comm, stream) == ncclSuccess);
                CHECK(ncclAllReduce(floats + at, floats + at, 8, ncclFloat, ncclSum, comm, stream) == ncclSuccess);
                CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
                CHECK(ncclCommDestroy(comm) == ncclSuccess);
                CHECK(cudaStreamDestroy(stream) == cudaSuccess);
                CHECK(ncclMemFree(memory) == ncclSuccess);
                CHECK(cudaFree(other) == cudaSuccess);
            });
            CHECK(standin::uneven_windows().size() == (even ? 0U : 3U));
        }
    }
}

TEST_CASE("a rank that never comes: in progress until the abort, and its id can be used again") {
    const Fresh fresh;
    const ncclUniqueId id = new_id();
    ncclComm_t comm = begin_non_blocking(2, id, 0);
    for (int i = 0; i < 10; ++i) { CHECK(async_error(comm) == ncclInProgress); }
    CHECK(ncclCommAbort(comm) == ncclSuccess);
    standin::set_patience(std::chrono::milliseconds(20));
    CHECK(ncclCommInitRank(&comm, 2, id, 0) == ncclSystemError);
    CHECK(comm == nullptr);
    CHECK(standin::hangs() == 1);
    standin::set_patience(std::chrono::milliseconds(20000));
    on_ranks(2, [&](int rank) {
        ncclComm_t made = nullptr;
        CHECK(ncclCommInitRank(&made, 2, id, rank) == ncclSuccess);
        CHECK(ncclCommFinalize(made) == ncclSuccess);
        CHECK(ncclCommDestroy(made) == ncclSuccess);
    });
}

TEST_CASE("creation: wrong arguments, shared devices, injected failures, NCCL_COMM_ID, one thread for all") {
    const Fresh fresh;
    const ncclUniqueId id = new_id();
    ncclComm_t comm = nullptr;
    CHECK(ncclCommInitRank(&comm, 2, id, 2) == ncclInvalidArgument);
    CHECK(ncclCommInitRank(nullptr, 1, id, 0) == ncclInvalidArgument);
    ncclConfig_t config{};
    CHECK(ncclCommInitRankConfig(&comm, 1, id, 0, &config) == ncclInvalidArgument);
    standin::fail_next("ncclCommInitRank", ncclSystemError);
    CHECK(ncclCommInitRank(&comm, 1, id, 0) == ncclSystemError);
    const ncclUniqueId shared = new_id();
    on_ranks(2, [&](int rank) {
        CHECK(cudaSetDevice(0) == cudaSuccess);
        ncclComm_t made = nullptr;
        CHECK(ncclCommInitRank(&made, 2, shared, rank) == ncclInvalidUsage);
        CHECK(std::string(ncclGetLastError(nullptr)).find("Duplicate GPU") != std::string::npos);
        CHECK(made == nullptr);
    });

    ::setenv("NCCL_COMM_ID", "127.0.0.1:4444", 1);
    on_ranks(2, [](int rank) {
        ncclComm_t made = nullptr;
        CHECK(ncclCommInitRank(&made, 2, new_id(), rank) == ncclSuccess);
        CHECK(ncclCommDestroy(made) == ncclSuccess);
    });
    ::unsetenv("NCCL_COMM_ID");

    const ncclUniqueId grouped = new_id();
    ncclComm_t comms[2]{};
    CHECK(ncclGroupStart() == ncclSuccess);
    for (int rank = 0; rank < 2; ++rank) {
        CHECK(cudaSetDevice(rank) == cudaSuccess);
        CHECK(ncclCommInitRank(&comms[rank], 2, grouped, rank) == ncclSuccess);
    }
    CHECK(ncclGroupEnd() == ncclSuccess);
    for (ncclComm_t each : comms) { CHECK(ncclCommDestroy(each) == ncclSuccess); }

    int version = 0;
    standin::set_nccl_version(21800);
    CHECK(ncclGetVersion(&version) == ncclSuccess);
    CHECK(version == 21800);
    CHECK(std::string(ncclGetErrorString(ncclRemoteError)) == "remote process exited or there was a network error");
}

namespace {

/// Two communicators of two ranks; both ranks use both, each on its stream.
template <class F>
void with_two_communicators(const F& f) {
    with_ranks(2, [&](const Rank& r) {
        ncclComm_t other = nullptr;
        TestStream second;
        CHECK(ncclCommSplit(r.comm, 0, r.rank, &other, nullptr) == ncclSuccess);
        {
            DeviceArray<int> values(2);
            f(
                r,
                [&] {
                    CHECK(ncclAllReduce(values.data, values.data, 1, ncclInt32, ncclSum, r.comm, r.stream) ==
                          ncclSuccess);
                },
                [&] {
                    CHECK(ncclAllReduce(values.data + 1, values.data + 1, 1, ncclInt32, ncclSum, other, second) ==
                          ncclSuccess);
                });
            CHECK(cudaStreamSynchronize(r.stream) == cudaSuccess);
            CHECK(cudaStreamSynchronize(second) == cudaSuccess);
        }
        CHECK(ncclCommDestroy(other) == ncclSuccess);
    });
}

}  // namespace

TEST_CASE("launch orders that differ between devices are reported") {
    const Fresh fresh;
    with_two_communicators([](const Rank&, const auto& first, const auto& second) {
        for (int i = 0; i < 10; ++i) {
            first();
            second();
        }
    });
    CHECK(standin::order_violations().empty());
    with_two_communicators([](const Rank& r, const auto& first, const auto& second) {
        CHECK(ncclGroupStart() == ncclSuccess);
        r.rank == 0 ? first() : second();
        r.rank == 0 ? second() : first();
        CHECK(ncclGroupEnd() == ncclSuccess);  // one launch: no order within
    });
    CHECK(standin::order_violations().empty());
    with_two_communicators([](const Rank& r, const auto& first, const auto& second) {
        r.rank == 0 ? first() : second();
        r.rank == 0 ? second() : first();
        first();
        second();
    });
    const auto found = standin::order_violations();
    REQUIRE(found.size() == 1);
    CHECK(found.front().find("the other way round") != std::string::npos);
}

TEST_CASE("launch orders: reported as soon as they are certain, whichever rank comes first") {
    const Fresh fresh;
    ncclComm_t comms[2][2]{};  // [communicator][rank]; one thread drives both ranks
    for (auto& comm : comms) {
        const ncclUniqueId id = new_id();
        CHECK(ncclGroupStart() == ncclSuccess);
        for (int rank = 0; rank < 2; ++rank) {
            CHECK(cudaSetDevice(rank) == cudaSuccess);
            CHECK(ncclCommInitRank(&comm[rank], 2, id, rank) == ncclSuccess);
        }
        CHECK(ncclGroupEnd() == ncclSuccess);
    }
    {
        CHECK(cudaSetDevice(0) == cudaSuccess);
        DeviceArray<int> value_0(1);
        TestStream streams_0[2];
        CHECK(cudaSetDevice(1) == cudaSuccess);
        DeviceArray<int> value_1(1);
        TestStream streams_1[2];
        const auto launch = [&](int comm, int rank) {
            int* const value = rank == 0 ? value_0.data : value_1.data;
            CHECK(ncclAllReduce(value, value, 1, ncclInt32, ncclSum, comms[comm][rank],
                                rank == 0 ? streams_0[comm] : streams_1[comm]) == ncclSuccess);
        };
        launch(0, 0);
        CHECK(standin::order_violations().empty());
        launch(1, 1);  // rank 0 will launch this one after the other
        CHECK(standin::order_violations().size() == 1);
        launch(1, 0);
        launch(0, 1);
        CHECK(standin::order_violations().size() == 1);
        launch(0, 0);
        launch(1, 0);
        CHECK(standin::order_violations().size() == 1);
        launch(1, 1);  // rank 0 has launched the other one before
        CHECK(standin::order_violations().size() == 2);
        launch(0, 1);
        for (const int comm : {0, 1}) {
            for (const int rank : {0, 1}) { launch(comm, rank); }
        }
        CHECK(standin::order_violations().size() == 2);
        CHECK(cudaStreamSynchronize(streams_0[0]) == cudaSuccess);
        CHECK(cudaStreamSynchronize(streams_0[1]) == cudaSuccess);
    }
    for (auto& comm : comms) {
        for (ncclComm_t each : comm) { CHECK(ncclCommDestroy(each) == ncclSuccess); }
    }
}

TEST_CASE("one communicator's work of two streams runs in the order of its launches, that of two communicators not") {
    for (const Pace pace : {Pace::lazy, Pace::eager}) {
        for (const bool second : {false, true}) {
            const Fresh fresh;
            standin::set_pace(pace);
            with_ranks(2, [&](const Rank& r) {
                ncclComm_t other = nullptr;
                CHECK(ncclCommSplit(r.comm, 0, r.rank, &other, nullptr) == ncclSuccess);
                const TestStream beside;
                const DeviceArray<float> values(4);
                const DeviceArray<float> others(4);
                standin::hold(r.stream);
                CHECK(ncclAllReduce(values.data, values.data, 4, ncclFloat, ncclSum, r.comm, r.stream) ==
                      ncclSuccess);
                CHECK(ncclAllReduce(others.data, others.data, 4, ncclFloat, ncclSum, second ? other : r.comm,
                                    beside) == ncclSuccess);
                if (second) {
                    CHECK(cudaStreamSynchronize(beside) == cudaSuccess);
                } else {
                    CHECK(cudaStreamQuery(beside) == cudaErrorNotReady);
                }
                standin::release(r.stream);
                CHECK(cudaStreamSynchronize(beside) == cudaSuccess);
                CHECK(cudaStreamSynchronize(r.stream) == cudaSuccess);
                CHECK(ncclCommDestroy(other) == ncclSuccess);
            });
        }
    }
}

TEST_CASE("graphs keep the order of one communicator's work, without an edge too") {
    const Fresh fresh;
    with_ranks(3, [](const Rank& r) {
        TestStream side;
        TestEvent fork;
        TestEvent join;
        DeviceArray<int> value(1);
        cudaGraph_t graph = nullptr;
        cudaGraphExec_t executable = nullptr;
        value[0] = 1 + r.rank;
        CHECK(cudaStreamBeginCapture(r.stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
        CHECK(cudaEventRecord(fork, r.stream) == cudaSuccess);
        CHECK(cudaStreamWaitEvent(side, fork) == cudaSuccess);
        CHECK(ncclAllReduce(value.data, value.data, 1, ncclInt32, ncclSum, r.comm, r.stream) == ncclSuccess);
        CHECK(ncclBroadcast(value.data, value.data, 1, ncclInt32, 0, r.comm, side) == ncclSuccess);
        CHECK(cudaEventRecord(join, side) == cudaSuccess);
        CHECK(cudaStreamWaitEvent(r.stream, join) == cudaSuccess);
        CHECK(cudaStreamEndCapture(r.stream, &graph) == cudaSuccess);
        CHECK(cudaGraphInstantiate(&executable, graph) == cudaSuccess);
        CHECK(cudaGraphLaunch(executable, r.stream) == cudaSuccess);
        CHECK(cudaStreamSynchronize(r.stream) == cudaSuccess);
        CHECK(value[0] == 6);  // 3 if the broadcast came first
        CHECK(cudaGraphExecDestroy(executable) == cudaSuccess);
        CHECK(cudaGraphDestroy(graph) == cudaSuccess);
    });
}

TEST_CASE("graphs replay collectives") {
    const Fresh fresh;
    with_ranks(3, [](const Rank& r) {
        TestStream side;
        TestEvent fork;
        TestEvent join;
        DeviceArray<int> value(1);
        cudaGraph_t graph = nullptr;
        cudaGraphExec_t executable = nullptr;
        value[0] = 1;
        CHECK(cudaStreamBeginCapture(r.stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
        r.stream.run([&] { value[0] += r.rank; });
        CHECK(cudaEventRecord(fork, r.stream) == cudaSuccess);
        CHECK(cudaStreamWaitEvent(side, fork) == cudaSuccess);
        CHECK(ncclAllReduce(value.data, value.data, 1, ncclInt32, ncclSum, r.comm, side) == ncclSuccess);
        CHECK(cudaEventRecord(join, side) == cudaSuccess);
        CHECK(cudaStreamWaitEvent(r.stream, join) == cudaSuccess);
        r.stream.run([&] { value[0] += 100; });
        CHECK(cudaStreamEndCapture(r.stream, &graph) == cudaSuccess);
        CHECK(cudaGraphInstantiate(&executable, graph) == cudaSuccess);
        CHECK(value[0] == 1);
        int expected = 1;
        for (int i = 0; i < 3; ++i) {
            CHECK(cudaGraphLaunch(executable, r.stream) == cudaSuccess);
            CHECK(cudaStreamSynchronize(r.stream) == cudaSuccess);
            expected = 3 * expected + 3 + 100;
            CHECK(value[0] == expected);
        }
        CHECK(cudaGraphExecDestroy(executable) == cudaSuccess);
        CHECK(cudaGraphDestroy(graph) == cudaSuccess);
    });
    CHECK(standin::order_violations().empty());
}

TEST_CASE("a blocking communicator's end waits until no graph holds its work") {
    for (const bool abort : {false, true}) {
        const Fresh fresh;
        const auto end = [&](ncclComm_t comm) { return abort ? ncclCommAbort(comm) : ncclCommDestroy(comm); };
        const auto with_graph = [&](const auto& f) {
            TestStream stream;
            DeviceArray<int> value(1);
            ncclComm_t comm = nullptr;
            CHECK(ncclCommInitRank(&comm, 1, new_id(), 0) == ncclSuccess);
            f(comm, captured(stream, [&] {
                  CHECK(ncclAllReduce(value.data, value.data, 1, ncclInt32, ncclSum, comm, stream) == ncclSuccess);
              }));
        };
        with_graph([&](ncclComm_t comm, cudaGraphExec_t graph) {
            CHECK(cudaGraphExecDestroy(graph) == cudaSuccess);
            CHECK(end(comm) == ncclSuccess);
        });
        with_graph([&](ncclComm_t comm, cudaGraphExec_t graph) {
            std::atomic<bool> ended = false;
            std::thread other([&] {
                CHECK(end(comm) == ncclSuccess);
                ended = true;
            });
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
            CHECK_FALSE(ended);
            CHECK(cudaGraphExecDestroy(graph) == cudaSuccess);
            other.join();
        });
        CHECK(standin::hangs() == 0);
        with_graph([&](ncclComm_t comm, cudaGraphExec_t graph) {
            standin::set_patience(std::chrono::milliseconds(20));
            CHECK(end(comm) == ncclSystemError);
            CHECK(standin::hangs() == 1);
            CHECK(cudaGraphExecDestroy(graph) == cudaSuccess);
        });
    }
}

TEST_CASE("NCCL memory, registrations and windows") {
    const Fresh fresh;
    with_ranks(2, [](const Rank& r) {
        void* memory = nullptr;
        void* handle = nullptr;
        ncclWindow_t window = nullptr;
        CHECK(ncclMemAlloc(&memory, 4096) == ncclSuccess);
        CHECK(cudaFree(memory) == cudaErrorInvalidValue);
        CHECK(ncclCommRegister(r.comm, memory, 4096, &handle) == ncclSuccess);
        CHECK(ncclCommWindowRegister(r.comm, memory, 4096, &window, NCCL_WIN_COLL_SYMMETRIC) == ncclSuccess);
        CHECK(ncclCommWindowDeregister(r.comm, window) == ncclSuccess);
        CHECK(ncclCommWindowDeregister(r.comm, window) == ncclInvalidArgument);
        CHECK(ncclCommDeregister(r.comm, handle) == ncclSuccess);
        DeviceArray<char> ordinary(4096);
        CHECK(ncclCommWindowRegister(r.comm, ordinary.data, 4096, &window, 0) == ncclInvalidArgument);
        CHECK(ncclMemFree(ordinary.data) == ncclInvalidArgument);
        CHECK(ncclAllReduce(memory, memory, 8, ncclInt32, ncclSum, r.comm, r.stream) == ncclSuccess);
        CHECK(ncclMemFree(memory) == ncclSuccess);  // too early, but it waits
    });
    // The second rank's memory may have been used up by the first one's wait.
    CHECK_FALSE(standin::frees_in_use().empty());
    standin::fail_next("ncclMemAlloc", ncclUnhandledCudaError);
    void* memory = nullptr;
    CHECK(ncclMemAlloc(&memory, 1) == ncclUnhandledCudaError);
}

}  // namespace standin_nccl_test
