// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

#include <shardkit/backend/mpi/api.hpp>
#include <shardkit/memory/host_buffer.hpp>

#include "../collectives/elements.hpp"
#include "../collectives/shape.hpp"
#include "../collectives/verbs/all_gather.hpp"
#include "../collectives/verbs/all_reduce.hpp"
#include "../collectives/verbs/barrier.hpp"
#include "../collectives/verbs/reduce_scatter.hpp"
#include "../common/workload.hpp"

namespace benchmarks::peers {

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

}  // namespace benchmarks::peers
