// SPDX-License-Identifier: Apache-2.0
// What shardkit uses of NCCL, for a machine without a GPU: the names, the types and the values are those of
// NCCL 2.32, or of the version that -DSTANDIN_NCCL_VERSION=<code> names (what is newer than that is left out); the
// behaviour is that of tests/standin/standin.hpp, where the library is one of 2.28 unless a test says otherwise.
#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>

#include <cuda_runtime_api.h>

#ifndef STANDIN_NCCL_VERSION
#define STANDIN_NCCL_VERSION 23203
#endif

#define NCCL_VERSION_CODE STANDIN_NCCL_VERSION
#define NCCL_VERSION(X, Y, Z) (((X) <= 2 && (Y) <= 8) ? (X)*1000 + (Y)*100 + (Z) : (X)*10000 + (Y)*100 + (Z))
#define NCCL_MAJOR (NCCL_VERSION_CODE / 10000)
#define NCCL_MINOR (NCCL_VERSION_CODE / 100 % 100)
#define NCCL_PATCH (NCCL_VERSION_CODE % 100)
#define NCCL_SUFFIX ""

typedef struct ncclComm* ncclComm_t;
#define NCCL_COMM_NULL NULL

#define NCCL_UNIQUE_ID_BYTES 128
typedef struct {
    char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;

typedef enum {
    ncclSuccess = 0,
    ncclUnhandledCudaError = 1,
    ncclSystemError = 2,
    ncclInternalError = 3,
    ncclInvalidArgument = 4,
    ncclInvalidUsage = 5,
    ncclRemoteError = 6,
    ncclInProgress = 7,
    ncclNumResults = 8
} ncclResult_t;

#define NCCL_CONFIG_UNDEF_INT INT_MIN
#define NCCL_CONFIG_UNDEF_PTR NULL
#define NCCL_SPLIT_NOCOLOR -1
#define NCCL_CTA_POLICY_ZERO 0x02

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 32, 0)
typedef enum {
    ncclNvlsHostModeDefault = NCCL_CONFIG_UNDEF_INT,
    ncclNvlsHostModeEnable = 0,
    ncclNvlsHostModeDisableTransport = 1 << 0,
    ncclNvlsHostModeDisableSymmetricMultimem = 1 << 1,
    ncclNvlsHostModeDisable = INT_MAX,
} ncclNvlsHostMode_t;
#endif

typedef struct {
    std::size_t size;
    unsigned int magic;
    unsigned int version;
    int blocking;
    int cgaClusterSize;
    int minCTAs;
    int maxCTAs;
    const char* netName;
    int splitShare;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
    int trafficClass;
    const char* commName;
    int collnetEnable;
    int CTAPolicy;
    int shrinkShare;
    int nvlsCTAs;
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
    int nChannelsPerNetPeer;
    int nvlinkCentricSched;
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 29, 0)
    int graphUsageMode;
    int numRmaCtx;
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 30, 0)
    int maxP2pPeers;
    int graphStreamOrdering;
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 31, 0)
    int launchOrderImplicit;
    int numRmaSig;
    int rmaEagerInit;
    int hostCftMode;
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 32, 0)
    int nvlsHostMode;
#endif
} ncclConfig_t;

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
#define STANDIN_NCCL_FIELDS_27                                                                    \
    , NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_PTR, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, \
        NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT
#else
#define STANDIN_NCCL_FIELDS_27
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
#define STANDIN_NCCL_FIELDS_28 , NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT
#else
#define STANDIN_NCCL_FIELDS_28
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 29, 0)
#define STANDIN_NCCL_FIELDS_29 , NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT
#else
#define STANDIN_NCCL_FIELDS_29
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 30, 0)
#define STANDIN_NCCL_FIELDS_30 , NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT
#else
#define STANDIN_NCCL_FIELDS_30
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 31, 0)
#define STANDIN_NCCL_FIELDS_31 \
    , NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT
#else
#define STANDIN_NCCL_FIELDS_31
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 32, 0)
#define STANDIN_NCCL_FIELDS_32 , NCCL_CONFIG_UNDEF_INT
#else
#define STANDIN_NCCL_FIELDS_32
#endif

#define NCCL_CONFIG_INITIALIZER                                                                            \
    {                                                                                                      \
        sizeof(ncclConfig_t), 0xcafebeef, NCCL_VERSION_CODE, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, \
            NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_PTR,                           \
            NCCL_CONFIG_UNDEF_INT STANDIN_NCCL_FIELDS_27 STANDIN_NCCL_FIELDS_28 STANDIN_NCCL_FIELDS_29     \
                STANDIN_NCCL_FIELDS_30 STANDIN_NCCL_FIELDS_31 STANDIN_NCCL_FIELDS_32                       \
    }

typedef enum { ncclNumOps_dummy = 5 } ncclRedOp_dummy_t;
typedef enum {
    ncclSum = 0,
    ncclProd = 1,
    ncclMax = 2,
    ncclMin = 3,
    ncclAvg = 4,
    ncclNumOps = 5,
    ncclMaxRedOp = 0x7fffffff >> (32 - 8 * sizeof(ncclRedOp_dummy_t))
} ncclRedOp_t;

typedef enum {
    ncclInt8 = 0,
    ncclChar = 0,
    ncclUint8 = 1,
    ncclInt32 = 2,
    ncclInt = 2,
    ncclUint32 = 3,
    ncclInt64 = 4,
    ncclUint64 = 5,
    ncclFloat16 = 6,
    ncclHalf = 6,
    ncclFloat32 = 7,
    ncclFloat = 7,
    ncclFloat64 = 8,
    ncclDouble = 8,
    ncclBfloat16 = 9,
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 24, 0)
    ncclFloat8e4m3 = 10,
    ncclFloat8e5m2 = 11,
    ncclNumTypes = 12
#else
    ncclNumTypes = 10
#endif
} ncclDataType_t;

extern "C" {
ncclResult_t ncclGetVersion(int* version);
ncclResult_t ncclGetUniqueId(ncclUniqueId* id);
const char* ncclGetErrorString(ncclResult_t result);
const char* ncclGetLastError(ncclComm_t comm);

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank);
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config);
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* made, ncclConfig_t* config);
ncclResult_t ncclCommFinalize(ncclComm_t comm);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error);
ncclResult_t ncclCommCount(const ncclComm_t comm, int* count);
ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device);
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank);

ncclResult_t ncclGroupStart();
ncclResult_t ncclGroupEnd();
ncclResult_t ncclAllGather(const void* send, void* receive, std::size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream);
ncclResult_t ncclReduceScatter(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclAllReduce(const void* send, void* receive, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclBroadcast(const void* send, void* receive, std::size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclSend(const void* send, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream);
ncclResult_t ncclRecv(void* receive, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream);

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 0)
ncclResult_t ncclMemAlloc(void** pointer, std::size_t size);
ncclResult_t ncclMemFree(void* pointer);
ncclResult_t ncclCommRegister(const ncclComm_t comm, void* buffer, std::size_t size, void** handle);
ncclResult_t ncclCommDeregister(const ncclComm_t comm, void* handle);
#endif

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
typedef struct ncclWindow_vidmem* ncclWindow_t;
#define NCCL_WIN_DEFAULT 0x00
#define NCCL_WIN_COLL_SYMMETRIC 0x01
#define NCCL_WIN_REQUIRED_ALIGNMENT 4096
#define NCCL_SHRINK_DEFAULT 0x00
#define NCCL_SHRINK_ABORT 0x01

ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* buffer, std::size_t size, ncclWindow_t* window, int flags);
ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window);
ncclResult_t ncclCommShrink(ncclComm_t comm, int* excluded, int excluded_count, ncclComm_t* made,
                            ncclConfig_t* config, int flags);
#endif

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 7)
#define NCCL_REVOKE_DEFAULT 0x00

ncclResult_t ncclCommRevoke(ncclComm_t comm, int flags);
#endif

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 29, 7)
typedef enum {
    ncclStatGpuMemSuspend = 0,
    ncclStatGpuMemSuspended = 1,
    ncclStatGpuMemPersist = 2,
    ncclStatGpuMemTotal = 3
} ncclCommMemStat_t;

ncclResult_t ncclCommMemStats(ncclComm_t comm, ncclCommMemStat_t stat, std::uint64_t* value);
#endif

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 31, 0)
typedef struct ncclConfigExt ncclConfigExt_t;
typedef struct {
    std::size_t size;
    unsigned int magic;
    unsigned int version;
    ncclConfigExt_t* ext;
    int minCTAs;
    int maxCTAs;
    int nvlsCTAs;
    int cgaClusterSize;
    const char* algSelection;
    int forceAlgSelection;
    int CTAPolicy;
    std::uint64_t userProfilerTag;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 32, 0)
    cudaEvent_t launchCompletionEvent;
#endif
} ncclCollConfig_t;

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 32, 0)
#define STANDIN_NCCL_COLL_FIELDS_32 , NCCL_CONFIG_UNDEF_PTR
#else
#define STANDIN_NCCL_COLL_FIELDS_32
#endif
#define NCCL_COLLCONFIG_INITIALIZER                                                                            \
    {                                                                                                          \
        sizeof(ncclCollConfig_t), 0xcafebeef, NCCL_VERSION_CODE, NCCL_CONFIG_UNDEF_PTR, NCCL_CONFIG_UNDEF_INT, \
            NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_PTR, 1,     \
            NCCL_CONFIG_UNDEF_INT, 0 STANDIN_NCCL_COLL_FIELDS_32                                               \
    }

ncclResult_t ncclAllGatherConfig(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                                 ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config);
ncclResult_t ncclBroadcastConfig(const void* send, void* receive, std::size_t count, ncclDataType_t type, int root,
                                 ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config);
ncclResult_t ncclReduceScatterConfig(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                                     ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream,
                                     const ncclCollConfig_t* config);
ncclResult_t ncclAllReduceConfig(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                                 ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream,
                                 const ncclCollConfig_t* config);
#endif
}
