// SPDX-License-Identifier: Apache-2.0
// Linked with the main of the collectives in place of run_in_process.cpp: an all-reduce whose result is spoiled on
// one of two ranks, measured and checked as any other.
#include <stdexcept>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>

#include "../../benchmarks/collectives/rows.hpp"
#include "../../benchmarks/common/measure.hpp"
#include "planted_verb.hpp"

namespace benchmarks {

void run_on_self(const Options& /*options*/, const RowSink& /*sink*/) { throw std::logic_error("not planted"); }

void run_on_threads(const Options& options, const RowSink& sink) {
    shardkit::threads::run(shardkit::DeviceMesh<2>{}, [&](shardkit::Rank& rank) {
        for (Row& row : plan_rows(options, 2)) {
            const Shape shape{{0, 1}, rank.rank(), row.count, 0, shardkit::ReduceOp::sum};
            OutOfPlace<Planted<AllReduce, Fault::one_element>, float> workload(rank, rank.world(), shape);
            row.out_of_place = time_beside_copy(rank, options, row.bytes, row.bytes, workload);
            if (rank.rank() == 0) { sink(row); }
        }
    });
}

}  // namespace benchmarks
