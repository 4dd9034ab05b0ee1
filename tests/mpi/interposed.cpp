// SPDX-License-Identifier: Apache-2.0
#include "interposed.hpp"

#include <mpi.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <type_traits>

namespace mpi_test::interposed {

namespace {

struct State {
    Calls calls;
    std::string_view failing;
    int calls_left = 0;
    bool counting = false;
    bool initialisation_denied = false;
};
State state;
thread_local int depth = 0;  // an MPI function may be made of others

std::atomic<int> threads_inside{0};
std::atomic<bool> met{false};
std::atomic<bool> lingers{false};

struct Inside {
    Inside() noexcept {
        if (++depth > 1) { return; }
        if (threads_inside.fetch_add(1) > 0) { met = true; }
        if (lingers) { std::this_thread::sleep_for(std::chrono::microseconds(100)); }
    }
    ~Inside() {
        if (--depth == 0) { threads_inside.fetch_sub(1); }
    }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;
};

/// Counts a call; whether it is the one that fails.
bool fails(std::string_view function) {
    if (!state.counting || depth > 1) { return false; }
    ++state.calls[function];
    return function == state.failing && --state.calls_left == 0;
}

template <class... A>
int starts(std::string_view function, int (*mpi)(A...), std::type_identity_t<A>... arguments) {
    const Inside here;
    return fails(function) ? MPI_ERR_OTHER : mpi(arguments...);
}
template <class... A>
int completes(std::string_view function, int (*mpi)(A...), std::type_identity_t<A>... arguments) {
    const Inside here;
    const bool failing = fails(function);
    const int code = mpi(arguments...);
    return failing ? MPI_ERR_OTHER : code;
}

}  // namespace

void restart() {
    state = {};
    state.counting = true;
}
const Calls& calls() { return state.calls; }
void fail(std::string_view function, int number) {
    state.failing = function;
    state.calls_left = number;
}
void deny_initialisation() { state.initialisation_denied = true; }
bool inside() noexcept { return depth > 0; }
void linger(bool on) noexcept { lingers = on; }
bool two_at_once() noexcept { return met; }

}  // namespace mpi_test::interposed

using namespace mpi_test::interposed;

extern "C" {

int MPI_Initialized(int* flag) {
    const int code = starts("MPI_Initialized", PMPI_Initialized, flag);
    if (state.initialisation_denied) { *flag = 0; }
    return code;
}
int MPI_Finalized(int* flag) { return starts("MPI_Finalized", PMPI_Finalized, flag); }
int MPI_Init_thread(int* count, char*** arguments, int wanted, int* provided) {
    return starts("MPI_Init_thread", PMPI_Init_thread, count, arguments, wanted, provided);
}
int MPI_Query_thread(int* level) { return starts("MPI_Query_thread", PMPI_Query_thread, level); }

int MPI_Comm_idup(MPI_Comm comm, MPI_Comm* made, MPI_Request* request) {
    return starts("MPI_Comm_idup", PMPI_Comm_idup, comm, made, request);
}
int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm* made) {
    return starts("MPI_Comm_split", PMPI_Comm_split, comm, color, key, made);
}
int MPI_Comm_free(MPI_Comm* comm) { return starts("MPI_Comm_free", PMPI_Comm_free, comm); }
int MPI_Comm_rank(MPI_Comm comm, int* rank) { return starts("MPI_Comm_rank", PMPI_Comm_rank, comm, rank); }
int MPI_Comm_size(MPI_Comm comm, int* size) { return starts("MPI_Comm_size", PMPI_Comm_size, comm, size); }
int MPI_Comm_get_errhandler(MPI_Comm comm, MPI_Errhandler* handler) {
    return starts("MPI_Comm_get_errhandler", PMPI_Comm_get_errhandler, comm, handler);
}
int MPI_Comm_set_errhandler(MPI_Comm comm, MPI_Errhandler handler) {
    return starts("MPI_Comm_set_errhandler", PMPI_Comm_set_errhandler, comm, handler);
}

int MPI_Ibarrier(MPI_Comm comm, MPI_Request* request) { return starts("MPI_Ibarrier", PMPI_Ibarrier, comm, request); }
int MPI_Iallgather(const void* from, int sent, MPI_Datatype sent_type, void* to, int received,
                   MPI_Datatype received_type, MPI_Comm comm, MPI_Request* request) {
    return starts("MPI_Iallgather", PMPI_Iallgather, from, sent, sent_type, to, received, received_type, comm,
                  request);
}
int MPI_Iallreduce(const void* from, void* to, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                   MPI_Request* request) {
    return starts("MPI_Iallreduce", PMPI_Iallreduce, from, to, count, type, op, comm, request);
}
int MPI_Ireduce_scatter_block(const void* from, void* to, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                              MPI_Request* request) {
    return starts("MPI_Ireduce_scatter_block", PMPI_Ireduce_scatter_block, from, to, count, type, op, comm, request);
}

int MPI_Isend(const void* values, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request* request) {
    return starts("MPI_Isend", PMPI_Isend, values, count, type, to, tag, comm, request);
}
int MPI_Irecv(void* values, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request* request) {
    return starts("MPI_Irecv", PMPI_Irecv, values, count, type, from, tag, comm, request);
}
int MPI_Recv(void* values, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Status* status) {
    return completes("MPI_Recv", PMPI_Recv, values, count, type, from, tag, comm, status);
}
int MPI_Iprobe(int from, int tag, MPI_Comm comm, int* arrived, MPI_Status* status) {
    return starts("MPI_Iprobe", PMPI_Iprobe, from, tag, comm, arrived, status);
}
int MPI_Get_count(const MPI_Status* status, MPI_Datatype type, int* count) {
    return starts("MPI_Get_count", PMPI_Get_count, status, type, count);
}
int MPI_Testall(int count, MPI_Request* requests, int* ended, MPI_Status* statuses) {
    const Inside here;
    if (!fails("MPI_Testall")) { return PMPI_Testall(count, requests, ended, statuses); }
    PMPI_Waitall(count, requests, statuses);
    return MPI_ERR_OTHER;
}

}  // extern "C"
