// SPDX-License-Identifier: Apache-2.0
// Every process of the MPI job runs the same test cases in the same order; only rank 0 reports them. A failure on
// another rank shows in the job's exit status.
#define DOCTEST_CONFIG_IMPLEMENT
#include <cstdio>
#include <cstdlib>
#include <exception>

#include <doctest/doctest.h>

#include <shardkit/backend/mpi/environment.hpp>

#include "harness/case_report.hpp"

int main(int count, char** arguments) {
    try {
        const shardkit::mpi::Environment mpi;
        if (mpi.rank() != 0) { unsetenv("SHARDKIT_TEST_REPORT"); }
        doctest::Context context(count, arguments);
        context.setOption("no-version", true);
        context.setOption("minimal", mpi.rank() != 0);
        // The ranks would no longer make the same calls.
        context.setOption("abort-after", 1);
        const int failed = context.run();
        if (failed != 0) { MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE); }
        return failed;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return EXIT_FAILURE;
    }
}
