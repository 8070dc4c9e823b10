// A build without MPI: a process is alone, or was started as one of several in vain.
#include "dist/comm_parts.h"

lp_status lp_comm_join(struct lp_comm **out, struct lp_err *err) {
    const char *by = lp_comm_launcher();
    *out = NULL;
    if (!by) return LP_OK;
    return lp_err_set(err, LP_STATUS_UNSUPPORTED,
                      "this process was started as one of several (%s is set), and this build of "
                      "limpid has no MPI; install Open MPI's development files (Debian: "
                      "libopenmpi-dev), configure with -DLIMPID_MPI=ON and build again",
                      by);
}
