// SPDX-License-Identifier: Apache-2.0
// Linked with the main of the policies in place of run_in_process_float.cpp: one rank whose gathers are spoiled once
// the reference is made.
#include "../../benchmarks/policies/run_in_process.hpp"
#include "spoiled_engine.hpp"

namespace benchmarks::policies {

template <>
void run_in_process<float>(const Job& job, const RowSink& sink) {
    const Reference<float> reference = train_alone<float>(job);
    SpoiledVerbs::spoils = true;
    shardkit::self::World world;
    shardkit::Rank rank(shardkit::DeviceMesh<1>{}.grid(), spoiled(world), {});
    run_rank<float>(rank, job, reference, sink);
}

}  // namespace benchmarks::policies
