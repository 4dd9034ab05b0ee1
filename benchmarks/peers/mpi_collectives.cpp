// SPDX-License-Identifier: Apache-2.0
// mpi_collectives compare|trust: measures, as the input of its rank 0 says, MPI's own collectives (variant raw) and
// those of the engine `mpi`, whose ranks share memory and compare their calls, or pass messages and trust each other.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <shardkit/backend/mpi/api.hpp>
#include <shardkit/backend/mpi/run.hpp>
#include <shardkit/memory/host_buffer.hpp>
#include <shardkit/mesh/device_mesh.hpp>

#include "../common/measure.hpp"
#include "../common/pin.hpp"
#include "serve_collectives.hpp"

namespace {

using namespace benchmarks;
using namespace benchmarks::peers;

/// MPI's own collective for verb V, from and to buffers aligned as the engine's are.
template <class V>
class RawMpi final : public Workload {
  public:
    explicit RawMpi(Shape shape) : shape_(std::move(shape)), sent_(V::sent(shape_)), received_(V::received(shape_)) {}

    void prepare() override {
        put(sent_, &V::given);
        put(received_, [](const Shape&, std::size_t) { return Number(); });
    }
    void call(std::size_t times) override {
        const int count = static_cast<int>(shape_.piece);
        for (std::size_t i = 0; i < times; ++i) {
            if (call_once(count) != MPI_SUCCESS) { throw std::runtime_error("MPI's own collective failed"); }
        }
    }
    std::uint64_t count_wrong() override {
        return benchmarks::count_wrong(std::span<const float>(received_.span()), &V::expected, shape_);
    }

  private:
    int call_once(int count) {
        if constexpr (std::is_same_v<V, AllReduce>) {
            return MPI_Allreduce(sent_.data(), received_.data(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        } else if constexpr (std::is_same_v<V, ReduceScatter>) {
            return MPI_Reduce_scatter_block(sent_.data(), received_.data(), count, MPI_FLOAT, MPI_SUM,
                                            MPI_COMM_WORLD);
        } else if constexpr (std::is_same_v<V, AllGather>) {
            return MPI_Allgather(sent_.data(), count, MPI_FLOAT, received_.data(), count, MPI_FLOAT, MPI_COMM_WORLD);
        } else {
            static_assert(std::is_same_v<V, Barrier>);
            return MPI_Barrier(MPI_COMM_WORLD);
        }
    }
    void put(const shardkit::HostBuffer<float>& buffer, NumberAt number) {
        const std::vector<float> values = elements<float>(buffer.size(), number, shape_);
        std::copy(values.begin(), values.end(), buffer.data());
    }

    Shape shape_;
    shardkit::HostBuffer<float> sent_;
    shardkit::HostBuffer<float> received_;
};

/// Gives every process of an MPI job the commands that rank 0 receives. Who waits, sleeps: MPI itself would spin, on
/// processors that belong to the peer meanwhile.
class ProcessRelay {
  public:
    /// Collective over MPI_COMM_WORLD.
    ProcessRelay() {
        MPI_Comm_dup(MPI_COMM_WORLD, &comm_);
        MPI_Comm_rank(comm_, &rank_);
        MPI_Comm_size(comm_, &size_);
    }
    ProcessRelay(const ProcessRelay&) = delete;
    ProcessRelay& operator=(const ProcessRelay&) = delete;
    ~ProcessRelay() { MPI_Comm_free(&comm_); }

    /// Collective over the processes.
    Command next() {
        std::string line;
        if (rank_ == 0) {
            line = read_line();
            for (int to = 1; to < size_; ++to) {
                MPI_Send(line.data(), static_cast<int>(line.size()), MPI_CHAR, to, 0, comm_);
            }
        } else {
            MPI_Status status;
            int is_there = 0;
            for (;;) {
                MPI_Iprobe(0, 0, comm_, &is_there, &status);
                if (is_there != 0) { break; }
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
            }
            int count = 0;
            MPI_Get_count(&status, MPI_CHAR, &count);
            line.resize(static_cast<std::size_t>(count));
            MPI_Recv(line.data(), count, MPI_CHAR, 0, 0, comm_, MPI_STATUS_IGNORE);
        }
        return words_of(line);
    }

  private:
    MPI_Comm comm_ = MPI_COMM_NULL;
    int rank_ = 0;
    int size_ = 1;
};

std::string library_version() {
    std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
    int length = 0;
    MPI_Get_library_version(text.data(), &length);
    std::string version(text.data());
    version.resize(std::min(version.find('\n'), version.size()));
    return version;
}

void serve(const std::string& calls) {
    if (calls != "compare" && calls != "trust") { throw std::invalid_argument("expected compare or trust"); }
    const shardkit::mpi::Environment mpi;
    ProcessRelay relay;
    shardkit::mpi::Options options;
    options.shared_memory = calls == "compare";
    options.compare_calls = options.shared_memory ? shardkit::CompareCalls::each_call : shardkit::CompareCalls::off;
    shardkit::mpi::run(
        shardkit::DeviceMesh(shardkit::mpi::Environment::size()),
        [&](shardkit::Rank& rank) {
            pin_to(allowed_processors(), rank.rank());
            if (rank.rank() == 0) {
                answer(facts({{"ranks", rank.world_size()}, {"mpi", library_version()}, {"pinned", true}}));
            }
            serve_collectives(
                rank, [&] { return relay.next(); },
                [&](const std::string& variant, const std::string& verb, std::size_t bytes) {
                    if (variant != "raw") { return library_workload(rank, verb, bytes); }
                    return with_named_verb(verb, [&]<class V>(V) -> std::unique_ptr<Workload> {
                        return std::make_unique<RawMpi<V>>(shape_of<V>(rank, bytes));
                    });
                });
        },
        {}, options);
}

}  // namespace

int main(int count, char** arguments) {
    return run_program("mpi_collectives", count, arguments, [](const Command& words) { serve(word_at(words, 1)); });
}
